// Attention statistics: norms and magnitudes of rows and channels, the input of the error model of
// `auto`. Every sum is in f64 and in the order of reference, so that `auto` samples the same rows;
// sums of four rows are interleaved.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/attention/attention_operand_values.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kSide = 4, kMax = AttentionOperandValues::kMax;
constexpr std::int64_t kMagnitude = std::numeric_limits<std::int64_t>::max();

// NaN compares above everything.
bool is_larger(double a, double b) { return b == b && !(a <= b); }

// Magnitudes as bits, which are in the same order, NaN above all, and vectorise.
struct Channels {
  double squares[kMax];
  std::int64_t amax[kMax];
};

// Rows [first, first + kSide) of one piece of columns; `real` of them exist.
void add_rows(const AttentionOperandValues& numbers, std::int64_t first, std::int64_t real,
              std::int64_t col, std::int64_t n, double (&row_squares)[kSide], Channels& channels) {
  alignas(64) double squares[kSide][kMax];
  for (std::int64_t r = 0; r < kSide; ++r) {
    if (r < real)
      numbers.piece(first + r, col, n, squares[r]);
    else
      std::fill_n(squares[r], n, 0.0);  // changes nothing
  }
  for (std::int64_t d = 0; d < n; ++d) {
    std::int64_t most = channels.amax[d];
    double sum = channels.squares[d];
    for (std::int64_t r = 0; r < kSide; ++r) {
      const double number = squares[r][d];
      most = std::max(most, std::bit_cast<std::int64_t>(number) & kMagnitude);
      squares[r][d] = number * number;
      sum += squares[r][d];
    }
    channels.amax[d] = most;
    channels.squares[d] = sum;
  }
  for (std::int64_t d = 0; d < n; ++d)
    for (std::int64_t r = 0; r < kSide; ++r) row_squares[r] += squares[r][d];
}

AttentionStatistics statistics_of(const AttentionOperandValues& numbers, std::int64_t cols,
                                  std::int64_t first, std::int64_t count) {
  AttentionStatistics result{.row = first};
  Channels channels;
  // Channels are summed for the first piece of the columns, and for wider rows in another pass for
  // each further piece.
  const std::int64_t pieces = std::max<std::int64_t>(1, blocks(cols, kMax));
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    std::fill_n(channels.squares, kMax, 0.0);
    std::fill_n(channels.amax, kMax, 0);
    const std::int64_t width = std::min(kMax, cols - piece * kMax);
    for (std::int64_t row = first; row < first + count; row += kSide) {
      const std::int64_t real = std::min(kSide, first + count - row);
      double row_squares[kSide] = {};
      add_rows(numbers, row, real, piece * kMax, width, row_squares, channels);
      if (piece > 0) continue;
      for (std::int64_t col = kMax; col < cols; col += kMax) {
        Channels others{};  // summed in a later pass
        add_rows(numbers, row, real, col, std::min(kMax, cols - col), row_squares, others);
      }
      for (std::int64_t r = 0; r < real; ++r) {
        result.mean_squares += row_squares[r];
        if (!is_larger(row_squares[r], result.row_squares)) continue;
        result.row = row + r;
        result.row_squares = row_squares[r];
      }
    }
    for (std::int64_t d = 0; d < width; ++d) {
      if (is_larger(channels.squares[d], result.channel_squares))
        result.channel_squares = channels.squares[d];
      const auto amax = std::bit_cast<double>(channels.amax[d]);
      if (is_larger(amax, result.amax)) result.amax = amax;
    }
  }
  if (count > 0) {
    result.mean_squares /= static_cast<double>(count);
    result.channel_squares /= static_cast<double>(count);
  }
  return result;
}

}  // namespace

void measure_attention_statistics(const Isa& isa, const Exec& exec,
                                  const AttentionStatisticsJob& job) {
  const std::int64_t rows = job.of.first.rows(), step = job.rows_per_range,
                     heads = job.batches * job.heads, ranges = blocks(rows, step);
  const int threads = useful_threads(exec, heads * rows * job.of.first.cols());
  parallel_units(heads * ranges, threads, [&](std::int64_t unit) {
    const std::int64_t head = unit / ranges, batch = head / job.heads, first = unit % ranges * step;
    const std::int64_t length = job.lengths != nullptr ? job.lengths[batch] : rows;
    const AttentionOperandValues numbers(isa, job.of.at(batch, head % job.heads));
    job.result[unit] =
        statistics_of(numbers, job.of.first.cols(), first,
                      std::clamp<std::int64_t>(length - first, 0, std::min(step, rows - first)));
  });
}

}  // namespace octavo::cpu
