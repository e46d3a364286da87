// Reference preparation of Q and K: smoothing and the Hadamard transform; attention_job.h has the
// order of every step.
#include <cmath>
#include <vector>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

void transform(std::vector<float>& row) {
  const std::size_t group = row.size() & (~row.size() + 1);  // the lowest bit that is set
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(group)));
  for (std::size_t step = 1; step < group; step *= 2)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if ((i & step) != 0) continue;
      const float a = row[i], b = row[i + step];
      row[i] = a + b;
      row[i + step] = a - b;
    }
  for (float& number : row) number *= factor;
}

void change_signs(std::vector<float>& row) {
  for (std::size_t d = 0; d < row.size(); ++d)
    if (hadamard_negative(static_cast<std::int64_t>(d))) row[d] = -row[d];
}

void prepare_head(const AttentionPrepareJob& job, const Matrix& from, const Matrix& to,
                  std::int64_t length, float* mean) {
  const auto cols = static_cast<std::size_t>(from.cols);
  if (mean != nullptr && !job.undo)
    for (std::size_t d = 0; d < cols; ++d) {
      double sum = 0.0;
      for (std::int64_t row = 0; row < length; ++row) {
        const double number = load_value(from, row, static_cast<std::int64_t>(d));
        if (std::isfinite(number)) sum += number;
      }
      mean[d] = length > 0 ? static_cast<float>(sum / static_cast<double>(length)) : 0.0F;
    }
  std::vector<float> numbers(cols);
  for (std::int64_t row = 0; row < to.rows; ++row) {
    for (std::size_t d = 0; d < cols; ++d)
      numbers[d] = row < length
                       ? static_cast<float>(load_value(from, row, static_cast<std::int64_t>(d)))
                       : 0.0F;
    if (row < length && !job.undo) {
      for (std::size_t d = 0; d < cols && mean != nullptr; ++d) numbers[d] -= mean[d];
      if (job.hadamard) {
        change_signs(numbers);
        transform(numbers);
      }
    } else if (row < length) {
      if (job.hadamard) {
        transform(numbers);
        change_signs(numbers);
      }
      for (std::size_t d = 0; d < cols && mean != nullptr; ++d) numbers[d] += mean[d];
    }
    for (std::size_t d = 0; d < cols; ++d)
      store_value(to, row, static_cast<std::int64_t>(d), static_cast<double>(numbers[d]));
  }
}

}  // namespace

void attention_prepare(const Exec&, const AttentionPrepareJob& job) {
  const FpEnvGuard guard;
  const std::int64_t cols = job.from.first.cols(), rows = job.from.first.rows();
  if (cols == 0) return;
  for (std::int64_t batch = 0; batch < job.batches; ++batch)
    for (std::int64_t head = 0; head < job.heads; ++head)
      prepare_head(job, job.from.at(batch, head).values, job.to.at(batch, head).values,
                   job.lengths != nullptr ? job.lengths[batch] : rows,
                   job.mean != nullptr ? job.mean + (batch * job.heads + head) * cols : nullptr);
}

}  // namespace octavo::reference
