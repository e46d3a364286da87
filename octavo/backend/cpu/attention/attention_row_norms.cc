// Norms for certified bounds of attention (AttentionNormsJob): one pass over an operand, and over
// what is used instead of it. In f32, or in f64 where values are; a difference of two such numbers
// is rounded once. Four rows are added to the channels at a time, which are loaded and stored for
// each, and sums of a row are spread over eight, so that all of it vectorises.
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

constexpr std::int64_t kMax = AttentionOperandValues::kMax, kLanes = 8, kSide = 4;

// Channels of one piece of columns, as arrays.
template <typename T>
struct Channels {
  alignas(64) T center[kMax], least[kMax], most[kMax];
  alignas(64) T sum[kMax], squares[kMax], fourth_powers[kMax];
  alignas(64) T error[kMax], error_squares[kMax];
};

// kSide rows, followed by zeros up to a multiple of kLanes.
template <typename T>
struct Rows {
  alignas(64) T given[kSide][kMax], error[kSide][kMax];
};

// To bf16, nearest even; a value that is not finite shows in other sums.
float nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

template <typename T>
void round_values(DType to, const T* from, T* rounded, std::int64_t n) {
  if (to == DType::f64) {
    std::copy_n(from, n, rounded);
  } else if (to == DType::f32) {
    for (std::int64_t i = 0; i < n; ++i) rounded[i] = static_cast<T>(static_cast<float>(from[i]));
  } else {  // kernels round f64 to f32 first, too
    for (std::int64_t i = 0; i < n; ++i)
      rounded[i] = static_cast<T>(nearest_bf16(static_cast<float>(from[i])));
  }
}

template <typename T>
double squares_of(const T* numbers, std::int64_t n) {
  T sums[kLanes] = {};
  for (std::int64_t i = 0; i < n; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) sums[l] += numbers[i + l] * numbers[i + l];
  double sum = 0.0;
  for (const T one : sums) sum += static_cast<double>(one);
  return sum;
}

// Rows [first, first + kCount). A number of rows that is known is what lets this vectorise.
template <std::int64_t kCount, typename T>
void add_values(const Rows<T>& rows, std::int64_t first, std::int64_t n, Channels<T>& to) {
  for (std::int64_t d = 0; d < n; ++d) {
    T least = to.least[d], most = to.most[d], sum = to.sum[d], squares = to.squares[d],
      fourth_powers = to.fourth_powers[d];
#pragma GCC unroll 4
    for (std::int64_t r = first; r < first + kCount; ++r) {
      const T number = rows.given[r][d], off = number - to.center[d], square = off * off;
      least = number < least ? number : least;
      most = number > most ? number : most;
      sum += off;
      squares += square;
      fourth_powers += square * square;
    }
    to.least[d] = least;
    to.most[d] = most;
    to.sum[d] = sum;
    to.squares[d] = squares;
    to.fourth_powers[d] = fourth_powers;
  }
}

template <std::int64_t kCount, typename T>
void add_errors(const Rows<T>& rows, std::int64_t first, std::int64_t n, Channels<T>& to) {
  for (std::int64_t d = 0; d < n; ++d) {
    T most = to.error[d], squares = to.error_squares[d];
#pragma GCC unroll 4
    for (std::int64_t r = first; r < first + kCount; ++r) {
      const T error = rows.error[r][d], size = std::abs(error);
      most = size > most ? size : most;
      squares += error * error;
    }
    to.error[d] = most;
    to.error_squares[d] = squares;
  }
}

// `count` rows, the first of kSide.
template <typename T>
void add_rows(const Rows<T>& rows, std::int64_t count, std::int64_t n, bool is_same,
              Channels<T>& to) {
  if (count == kSide) {
    add_values<kSide>(rows, 0, n, to);
    if (!is_same) add_errors<kSide>(rows, 0, n, to);
    return;
  }
  for (std::int64_t r = 0; r < count; ++r) {
    add_values<1>(rows, r, n, to);
    if (!is_same) add_errors<1>(rows, r, n, to);
  }
}

template <typename T>
class Measurer {
 public:
  Measurer(const Isa& isa, const AttentionNormsJob& job, std::int64_t batch, std::int64_t head)
      : job_(job),
        cols_(job.given.first.cols()),
        length_(job.lengths != nullptr ? job.lengths[batch] : job.given.first.rows()),
        given_(isa, job.given.at(batch, head)),
        is_same_(job.used == nullptr &&
                 (job.given.first.is_quantized() || job.values == DType::f64 ||
                  job.given.first.values.dtype == job.values)) {
    if (job.used != nullptr) used_.emplace(isa, job.used->at(batch, head));
  }

  // Rows [first, last) of the head; results are those of the head.
  void run(std::int64_t first, std::int64_t last, double* row_squares, double* row_error_squares,
           AttentionChannel* channels) const {
    const auto put = [](double* to, std::int64_t row, bool is_first, const T* numbers,
                        std::int64_t n) {
      if (to != nullptr) to[row] = (is_first ? 0.0 : to[row]) + squares_of(numbers, n);
    };
    for (std::int64_t col = 0; col < cols_; col += kMax) {
      const std::int64_t n = std::min(kMax, cols_ - col), whole = round_up(n, kLanes);
      Channels<T> sums;
      if (channels != nullptr) begin(sums, col, n);
      Rows<T> rows;
      for (std::int64_t row = first; row < last; row += kSide) {
        const std::int64_t count = std::min(kSide, last - row),
                           real = std::clamp<std::int64_t>(length_ - row, 0, count);
        for (std::int64_t r = 0; r < count; ++r) {
          if (r < real) load(row + r, col, n, rows, r);
          put(row_squares, row + r, col == 0, rows.given[r], r < real ? whole : 0);
          put(row_error_squares, row + r, col == 0, rows.error[r],
              r < real && !is_same_ ? whole : 0);
        }
        if (channels == nullptr) continue;
        add_rows(rows, real, n, is_same_, sums);
      }
      for (std::int64_t d = 0; channels != nullptr && d < n; ++d)
        channels[col + d] = {.center = static_cast<double>(sums.center[d]),
                             .least = static_cast<double>(sums.least[d]),
                             .most = static_cast<double>(sums.most[d]),
                             .sum = static_cast<double>(sums.sum[d]),
                             .squares = static_cast<double>(sums.squares[d]),
                             .fourth_powers = static_cast<double>(sums.fourth_powers[d]),
                             .error = static_cast<double>(sums.error[d]),
                             .error_squares = static_cast<double>(sums.error_squares[d])};
    }
  }

 private:
  void begin(Channels<T>& sums, std::int64_t col, std::int64_t n) const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    std::fill_n(sums.center, n, T{0});
    std::fill_n(sums.least, n, kInfinity);
    std::fill_n(sums.most, n, -kInfinity);
    for (T* zeros : {sums.sum, sums.squares, sums.fourth_powers, sums.error, sums.error_squares})
      std::fill_n(zeros, n, T{0});
    const std::int64_t count = std::min(length_, kCenterRows);
    alignas(64) T numbers[kMax];
    for (std::int64_t i = 0; i < count; ++i) {
      given_.piece(i * length_ / count, col, n, numbers);
      for (std::int64_t d = 0; d < n; ++d) sums.center[d] += numbers[d] / static_cast<T>(count);
    }
  }

  void load(std::int64_t row, std::int64_t col, std::int64_t n, Rows<T>& rows,
            std::int64_t r) const {
    T *given = rows.given[r], *error = rows.error[r];
    const std::int64_t whole = round_up(n, kLanes);
    given_.piece(row, col, n, given);
    std::fill(given + n, given + whole, T{0});
    if (is_same_) return;
    if (used_) {
      used_->piece(row, col, n, error);
    } else {
      round_values(job_.values, given, error, n);
    }
    for (std::int64_t d = 0; d < n; ++d) error[d] = given[d] - error[d];
    std::fill(error + n, error + whole, T{0});
  }

  const AttentionNormsJob& job_;
  std::int64_t cols_, length_;
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
  const bool is_wide =
      !job.given.first.is_quantized() && job.given.first.values.dtype == DType::f64;
  parallel_units(heads * ranges, threads, [&](std::int64_t unit) {
    const std::int64_t head = unit / ranges, first = unit % ranges * step;
    const auto of_head = [&](double* all) { return all != nullptr ? all + head * rows : nullptr; };
    const auto run = [&]<typename T>(T) {
      Measurer<T>(isa, job, head / job.heads, head % job.heads)
          .run(first, std::min(rows, first + step), of_head(job.row_squares),
               of_head(job.row_error_squares),
               job.channels != nullptr ? job.channels + unit * cols : nullptr);
    };
    is_wide ? run(double{}) : run(float{});
  });
}

}  // namespace octavo::cpu
