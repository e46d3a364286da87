// Norms for certified bounds of attention (AttentionNormsJob): one pass over an operand, and over
// what is used instead of it. Sums are in f64; those of a row are spread over eight, so that they
// vectorise.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

#include "octavo/backend/attention_norms_job.h"
#include "octavo/backend/cpu/attention/attention_operand_values.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMax = AttentionOperandValues::kMax, kLanes = 8;

// Channels of one piece of columns, as arrays, so that loops over them vectorise.
struct Channels {
  alignas(64) double center[kMax], least[kMax], most[kMax];
  alignas(64) double squares[kMax], fourth_powers[kMax];
  alignas(64) double error[kMax], error_squares[kMax];
};

struct RowSquares {
  double given = 0.0, error = 0.0;
};

// Nearest even; a value that is not finite stays so, and shows in the sums.
void round_values(DType to, const double* from, double* rounded, std::int64_t n) {
  if (to == DType::f64) {
    std::copy_n(from, n, rounded);
    return;
  }
  if (to == DType::f32) {
    for (std::int64_t i = 0; i < n; ++i)
      rounded[i] = static_cast<double>(static_cast<float>(from[i]));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {  // kernels round to f32 first, too
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(from[i]));
    rounded[i] = static_cast<double>(
        std::bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u));
  }
}

// Numbers are followed by zeros up to a multiple of kLanes.
double squares_of(const double* numbers, std::int64_t n) {
  double sums[kLanes] = {};
  for (std::int64_t i = 0; i < n; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) sums[l] += numbers[i + l] * numbers[i + l];
  double sum = 0.0;
  for (const double one : sums) sum += one;
  return sum;
}

class Measurer {
 public:
  Measurer(const Isa& isa, const AttentionNormsJob& job, std::int64_t batch, std::int64_t head)
      : job_(job),
        cols_(job.given.first.cols()),
        rows_(job.given.first.rows()),
        length_(job.lengths != nullptr ? job.lengths[batch] : rows_),
        given_(isa, job.given.at(batch, head)),
        is_same_(job.used == nullptr &&
                 (job.given.first.is_quantized() || job.values == DType::f64 ||
                  job.given.first.values.dtype == job.values)) {
    if (job.used != nullptr) used_.emplace(isa, job.used->at(batch, head));
  }

  // Rows [first, last) of the head; results are those of the head.
  void run(std::int64_t first, std::int64_t last, double* row_squares, double* row_error_squares,
           AttentionChannel* channels) const {
    for (std::int64_t col = 0; col < cols_; col += kMax) {
      const std::int64_t n = std::min(kMax, cols_ - col);
      Channels sums;
      if (channels != nullptr) begin(sums, col, n);
      for (std::int64_t row = first; row < last; ++row) {
        const RowSquares of_row = row < length_
                                      ? add_row(row, col, n, channels != nullptr ? &sums : nullptr)
                                      : RowSquares{};
        const auto put = [&](double* to, double number) {
          if (to != nullptr) to[row] = col == 0 ? number : to[row] + number;
        };
        put(row_squares, of_row.given);
        put(row_error_squares, of_row.error);
      }
      for (std::int64_t d = 0; channels != nullptr && d < n; ++d)
        channels[col + d] = {.center = sums.center[d],
                             .least = sums.least[d],
                             .most = sums.most[d],
                             .squares = sums.squares[d],
                             .fourth_powers = sums.fourth_powers[d],
                             .error = sums.error[d],
                             .error_squares = sums.error_squares[d]};
    }
  }

 private:
  void begin(Channels& sums, std::int64_t col, std::int64_t n) const {
    const AttentionChannel none;
    std::fill_n(sums.center, n, 0.0);
    std::fill_n(sums.least, n, none.least);
    std::fill_n(sums.most, n, none.most);
    for (double* zeros : {sums.squares, sums.fourth_powers, sums.error, sums.error_squares})
      std::fill_n(zeros, n, 0.0);
    const std::int64_t count = std::min(length_, kCenterRows);
    alignas(64) double numbers[kMax];
    for (std::int64_t i = 0; i < count; ++i) {
      given_.piece(i * length_ / count, col, n, numbers);
      for (std::int64_t d = 0; d < n; ++d)
        sums.center[d] += numbers[d] / static_cast<double>(count);
    }
  }

  RowSquares add_row(std::int64_t row, std::int64_t col, std::int64_t n, Channels* sums) const {
    alignas(64) double given[kMax], error[kMax];
    const std::int64_t whole = round_up(n, kLanes);
    given_.piece(row, col, n, given);
    std::fill(given + n, given + whole, 0.0);
    if (is_same_) {
      if (sums != nullptr) add_values(given, n, *sums);
      return {.given = squares_of(given, whole)};
    }
    if (used_) {
      used_->piece(row, col, n, error);
    } else {
      round_values(job_.values, given, error, n);
    }
    for (std::int64_t d = 0; d < n; ++d) error[d] = given[d] - error[d];
    std::fill(error + n, error + whole, 0.0);
    if (sums != nullptr) {
      add_values(given, n, *sums);
      for (std::int64_t d = 0; d < n; ++d) {
        sums->error[d] = std::max(sums->error[d], std::abs(error[d]));
        sums->error_squares[d] += error[d] * error[d];
      }
    }
    return {.given = squares_of(given, whole), .error = squares_of(error, whole)};
  }

  static void add_values(const double* given, std::int64_t n, Channels& sums) {
    for (std::int64_t d = 0; d < n; ++d) {
      const double number = given[d], off = number - sums.center[d], square = off * off;
      sums.least[d] = std::min(sums.least[d], number);
      sums.most[d] = std::max(sums.most[d], number);
      sums.squares[d] += square;
      sums.fourth_powers[d] += square * square;
    }
  }

  const AttentionNormsJob& job_;
  std::int64_t cols_, rows_, length_;
  AttentionOperandValues given_;
  std::optional<AttentionOperandValues> used_;
  bool is_same_;
};

}  // namespace

void measure_attention_norms(const Isa& isa, const Exec& exec, const AttentionNormsJob& job) {
  constexpr std::int64_t kRows = 256;  // of a unit, where no channels are asked for
  const std::int64_t rows = job.given.first.rows(), cols = job.given.first.cols(),
                     step = job.channels != nullptr ? job.rows_per_range : kRows,
                     heads = job.batches * job.heads, ranges = blocks(rows, step);
  const int threads = useful_threads(exec, heads * rows * cols);
  parallel_units(heads * ranges, threads, [&](std::int64_t unit) {
    const std::int64_t head = unit / ranges, first = unit % ranges * step;
    const auto of_head = [&](double* all) { return all != nullptr ? all + head * rows : nullptr; };
    Measurer(isa, job, head / job.heads, head % job.heads)
        .run(first, std::min(rows, first + step), of_head(job.row_squares),
             of_head(job.row_error_squares),
             job.channels != nullptr ? job.channels + unit * cols : nullptr);
  });
}

}  // namespace octavo::cpu
