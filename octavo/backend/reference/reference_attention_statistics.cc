#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/reference/attention_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

// NaN compares above everything.
bool is_larger(double a, double b) { return b == b && !(a <= b); }

AttentionStatistics statistics_of(const GemmOperand& of, std::int64_t first, std::int64_t count) {
  AttentionStatistics result{.row = first};
  const auto cols = static_cast<std::size_t>(of.cols());
  std::vector<double> channels(cols, 0.0);
  for (std::int64_t row = first; row < first + count; ++row) {
    const std::vector<double> numbers = rows_of(of, row, 1, DType::f64);
    double squares = 0.0;
    for (std::size_t d = 0; d < cols; ++d) {
      const double square = numbers[d] * numbers[d];
      squares += square;
      channels[d] += square;
      if (is_larger(std::abs(numbers[d]), result.amax)) result.amax = std::abs(numbers[d]);
    }
    result.mean_squares += squares;
    if (is_larger(squares, result.row_squares)) {
      result.row = row;
      result.row_squares = squares;
    }
  }
  if (count > 0) result.mean_squares /= static_cast<double>(count);
  for (const double sum : channels)
    if (is_larger(sum, result.channel_squares)) result.channel_squares = sum;
  if (count > 0) result.channel_squares /= static_cast<double>(count);
  return result;
}

}  // namespace

void attention_statistics(const Exec&, const AttentionStatisticsJob& job) {
  const FpEnvGuard guard;
  const std::int64_t rows = job.of.first.rows(), step = job.rows_per_range;
  AttentionStatistics* to = job.result;
  for (std::int64_t batch = 0; batch < job.batches; ++batch) {
    const std::int64_t length = job.lengths != nullptr ? job.lengths[batch] : rows;
    for (std::int64_t head = 0; head < job.heads; ++head)
      for (std::int64_t first = 0; first < rows; first += step)
        *to++ = statistics_of(
            job.of.at(batch, head), first,
            std::clamp<std::int64_t>(length - first, 0, std::min(step, rows - first)));
  }
}

}  // namespace octavo::reference
