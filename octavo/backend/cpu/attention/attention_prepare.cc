// Preparation of Q and K: smoothing and the Hadamard transform, with the bits of reference: every
// sum has a fixed order, and vector lanes are independent.
#include <cmath>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/attention/attention_operand_values.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kColumns = 32, kRows = 32;  // of a unit of work

void add_means(const Isa& isa, const AttentionPrepareJob& job, std::int64_t unit) {
  const std::int64_t cols = job.from.first.cols(), parts = blocks(cols, kColumns);
  const std::int64_t head = unit / parts, col = unit % parts * kColumns,
                     n = std::min(kColumns, cols - col);
  const std::int64_t batch = head / job.heads;
  const std::int64_t length = job.lengths != nullptr ? job.lengths[batch] : job.from.first.rows();
  const AttentionOperandValues numbers(isa, job.from.at(batch, head % job.heads));
  double sums[kColumns] = {}, row[kColumns] = {};
  for (std::int64_t r = 0; r < length; ++r) {
    numbers.piece(r, col, n, row);
    for (std::int64_t i = 0; i < kColumns; ++i)
      sums[i] += std::abs(row[i]) < HUGE_VAL ? row[i] : 0.0;  // NaN and Inf count as zero
  }
  float* to = job.mean + head * cols + col;
  for (std::int64_t i = 0; i < n; ++i)
    to[i] = length > 0 ? static_cast<float>(sums[i] / static_cast<double>(length)) : 0.0F;
}

void change_signs(float* row, std::int64_t cols) {
  for (std::int64_t d = 0; d < cols; ++d) row[d] = hadamard_negative(d) ? -row[d] : row[d];
}

// One round of butterflies of elements `step` apart.
template <std::int64_t kStep>
void butterflies(float* row, std::int64_t cols, std::int64_t step) {
  const std::int64_t h = kStep != 0 ? kStep : step;
  for (std::int64_t i = 0; i < cols; i += 2 * h)
    for (std::int64_t j = i; j < i + h; ++j) {
      const float a = row[j], b = row[j + h];
      row[j] = a + b;
      row[j + h] = a - b;
    }
}

void transform(float* row, std::int64_t cols) {
  const std::int64_t group = cols & -cols;  // the largest power of two that divides it
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(group)));
  if (group >= 2) butterflies<1>(row, cols, 1);
  if (group >= 4) butterflies<2>(row, cols, 2);
  for (std::int64_t step = 4; step < group; step *= 2) butterflies<0>(row, cols, step);
  for (std::int64_t d = 0; d < cols; ++d) row[d] *= factor;
}

void prepare_row(const AttentionPrepareJob& job, const float* mean, float* row, std::int64_t cols) {
  if (!job.undo) {
    for (std::int64_t d = 0; d < cols && mean != nullptr; ++d) row[d] -= mean[d];
    if (!job.hadamard) return;
    change_signs(row, cols);
    transform(row, cols);
    return;
  }
  if (job.hadamard) {
    transform(row, cols);
    change_signs(row, cols);
  }
  for (std::int64_t d = 0; d < cols && mean != nullptr; ++d) row[d] += mean[d];
}

}  // namespace

void prepare_attention(const Isa& isa, const Exec& exec, const AttentionPrepareJob& job) {
  const std::int64_t cols = job.from.first.cols(), rows = job.from.first.rows(),
                     heads = job.batches * job.heads;
  if (cols == 0) return;
  const int threads = useful_threads(exec, heads * rows * cols);
  if (job.mean != nullptr && !job.undo)
    parallel_units(heads * blocks(cols, kColumns), threads,
                   [&](std::int64_t unit) { add_means(isa, job, unit); });
  const std::int64_t parts = blocks(rows, kRows);
  parallel_units(heads * parts, threads, [&](std::int64_t unit) {
    const std::int64_t head = unit / parts, batch = head / job.heads;
    const std::int64_t length = job.lengths != nullptr ? job.lengths[batch] : rows;
    const AttentionOperandValues numbers(isa, job.from.at(batch, head % job.heads));
    const Matrix to = job.to.at(batch, head % job.heads).values;
    const float* mean = job.mean != nullptr ? job.mean + head * cols : nullptr;
    for (std::int64_t r = unit % parts * kRows; r < std::min(rows, (unit % parts + 1) * kRows);
         ++r) {
      auto* row = reinterpret_cast<float*>(element(to, r, 0));
      if (r >= length) {
        std::fill_n(row, cols, 0.0F);
        continue;
      }
      for (std::int64_t col = 0; col < cols; col += AttentionOperandValues::kMax)
        numbers.piece(r, col, std::min(AttentionOperandValues::kMax, cols - col), row + col);
      prepare_row(job, mean, row, cols);
    }
  });
}

}  // namespace octavo::cpu
