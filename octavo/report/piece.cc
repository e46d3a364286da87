#include <algorithm>
#include <cmath>

#include "octavo/base/fp_env.h"
#include "octavo/report/piece_internal.h"
#include "octavo/scale/hadamard.h"

namespace octavo {
namespace {

// Calls visit(first, last, tile) for the runs of a piece's row that share a scale; columns count
// from the start of the matrix, tiles within the piece.
template <typename Visit>
void for_each_run(const Measurement& job, const Piece& piece, Visit&& visit) {
  const std::int64_t first_tile = piece.col / job.tile_cols, end = piece.col + piece.cols;
  for (std::int64_t col = piece.col; col < end;) {
    const std::int64_t tile = col / job.tile_cols, next = std::min(end, (tile + 1) * job.tile_cols);
    visit(col, next, tile - first_tile);
    col = next;
  }
}

double scale_at(const Measurement& job, const Piece& piece, std::int64_t row, std::int64_t col) {
  const std::int64_t at = piece.scale_offset + row / job.tile_rows * job.plan.row.scale_stride +
                          col / job.tile_cols * job.plan.col.scale_stride;
  return job.scale(at / job.scale_bytes);
}

// Allows for the roundings of two products, 2^-53 each.
constexpr double kJustBelowOne = 1 - 0x1p-50;

// Of a finite value that is not zero. The library's ilogb is a call, and only subnormals need it.
int exponent_of(double x) {
  const auto field = static_cast<int>(__builtin_bit_cast(std::uint64_t, x) >> 52 & 0x7FF);
  return field > 0 ? field - 1023 : std::ilogb(x);
}

class Measuring {
 public:
  Measuring(const Measurement& job, const Piece& piece, PieceScratch& scratch, PieceSums& out)
      : job_(job), piece_(piece), scratch_(scratch), out_(out) {}

  void run() {
    load_values(job_, piece_, scratch_);
    load_codes(job_, piece_, scratch_);
    const std::int64_t tiles_across =
        (piece_.col + piece_.cols - 1) / job_.tile_cols - piece_.col / job_.tile_cols + 1;
    for (std::int64_t r = 0; r < piece_.rows; ++r) {
      const std::int64_t row = piece_.row + r,
                         tile_row = row / job_.tile_rows - piece_.row / job_.tile_rows;
      const auto start = static_cast<std::size_t>(r * piece_.cols);
      double* x = scratch_.values.data() + start;
      float* y = scratch_.narrow.data() + start;
      const std::uint16_t* codes = scratch_.codes.data() + start;
      for_each_run(job_, piece_, [&](std::int64_t col, std::int64_t end, std::int64_t) {
        const double scale = scale_at(job_, piece_, row, col);
        const std::int64_t at = col - piece_.col;
        dequantize(scale, codes + at, end - col, y + at);
        if (!job_.rotated) count_limits(scale, x + at, y + at, end - col);
      });
      // Saturated and flushed are counted on the encoded (transformed) values.
      if (job_.rotated) count_rotated(x, y, row);
      for_each_run(job_, piece_, [&](std::int64_t col, std::int64_t end, std::int64_t tile) {
        const std::int64_t at = col - piece_.col;
        const ErrorSums sums = job_.unit == 1 ? add_run<false>(x + at, y + at, end - col)
                                              : add_run<true>(x + at, y + at, end - col);
        out_.sums += sums;
        if (job_.rows) out_.rows[static_cast<std::size_t>(r)] += sums;
        if (job_.tiles)
          out_.tiles[static_cast<std::size_t>(tile_row * tiles_across + tile)] += sums;
      });
      if (job_.histograms) fill_histograms(x, codes);
    }
  }

 private:
  // As the kernels do it: exact in f64, then rounded to f32.
  void dequantize(double scale, const std::uint16_t* codes, std::int64_t count, float* y) const {
    for (std::int64_t i = 0; i < count; ++i)
      y[i] = static_cast<float>(scale * job_.decoded[codes[i]]);
  }

  void count_limits(double scale, const double* x, const float* y, std::int64_t count) {
    // A scale of zero or NaN has no range to be beyond of.
    const double most = scale > 0 ? job_.past_max * scale : HUGE_VAL,
                 least = scale > 0 ? job_.past_lowest * scale : -HUGE_VAL;
    std::int64_t saturated = 0, flushed = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const bool finite = std::isfinite(x[i]);
      saturated += static_cast<int>(finite) & (static_cast<int>(x[i] > most) | (x[i] < least));
      flushed += static_cast<int>(finite) & static_cast<int>(x[i] != 0) & (y[i] == 0.0F);
    }
    out_.saturated += saturated;
    out_.flushed += flushed;
  }

  // The same for a Hadamard-transformed row; then the inverse is applied to y. A tail of fewer than
  // 16 values was not transformed.
  void count_rotated(const double* x, float* y, std::int64_t row) {
    for (std::int64_t c = 0; c < piece_.cols; c += kHadamardSize) {
      const std::int64_t size = std::min<std::int64_t>(kHadamardSize, piece_.cols - c);
      float group[kHadamardSize];
      for (std::int64_t i = 0; i < size; ++i) group[i] = static_cast<float>(x[c + i]);
      if (size == kHadamardSize) hadamard16(group, job_.signs, job_.rotated_to_bf16);
      for (std::int64_t i = 0; i < size; ++i) {
        const auto encoded = static_cast<double>(group[i]);
        count_limits(scale_at(job_, piece_, row, piece_.col + c + i), &encoded, y + c + i, 1);
      }
      if (size == kHadamardSize) inverse_hadamard16(y + c, job_.signs);
    }
  }

  template <bool kInUnits>
  ErrorSums add_run(const double* x, const float* y, std::int64_t count) {
    ErrorSums sums;
    sums.unit = job_.unit;
    const double inv_unit = 1 / job_.unit;
    const auto measured = [inv_unit](double v) { return kInUnits ? v * inv_unit : v; };
    double result2 = 0, product = 0, amax = out_.amax, max_relative = out_.max_relative;
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = x[i], result = static_cast<double>(y[i]);
      if (!std::isfinite(value) || !std::isfinite(result)) [[unlikely]] {
        count_not_finite(value, result);
        continue;
      }
      const double magnitude = std::fabs(value), error = std::fabs(value - result);
      ++sums.count;
      sums.error2 += measured(error) * measured(error);
      sums.value2 += measured(value) * measured(value);
      result2 += result * result;  // f32: their squares are no trouble
      product += measured(value) * result;
      sums.max_abs = std::max(sums.max_abs, error);
      amax = std::max(amax, magnitude);
      // Divide only where the quotient can be a new maximum, which is seldom.
      if (error >= max_relative * kJustBelowOne * magnitude && magnitude > 0) [[unlikely]]
        max_relative = std::max(max_relative, error / magnitude);
    }
    out_.finite += sums.count;
    out_.result2 += result2;
    out_.product += product;
    out_.amax = amax;
    out_.max_relative = max_relative;
    return sums;
  }

  void count_not_finite(double value, double result) {
    (std::isnan(value) ? out_.input.nan : out_.input.inf) += !std::isfinite(value);
    (std::isnan(result) ? out_.result.nan : out_.result.inf) += !std::isfinite(result);
    if (!std::isfinite(value)) return;
    ++out_.finite;
    out_.lost_amax = std::max(out_.lost_amax, std::fabs(value));
  }

  void fill_histograms(const double* x, const std::uint16_t* codes) {
    std::int64_t *exponents = out_.exponents.data(), *counts = out_.codes.data(), zeros = 0;
    for (std::int64_t c = 0; c < piece_.cols; ++c) {
      ++counts[codes[c]];
      if (!std::isfinite(x[c])) continue;
      if (x[c] == 0) {
        ++zeros;
      } else {
        ++exponents[exponent_of(x[c]) - kLeastExponent];
      }
    }
    out_.zeros += zeros;
  }

  const Measurement& job_;
  const Piece& piece_;
  PieceScratch& scratch_;
  PieceSums& out_;
};

}  // namespace

void PieceSums::add(const PieceSums& other) {
  sums += other.sums;
  result2 += other.result2;
  product += other.product;
  max_relative = std::max(max_relative, other.max_relative);
  amax = std::max(amax, other.amax);
  lost_amax = std::max(lost_amax, other.lost_amax);
  saturated += other.saturated;
  flushed += other.flushed;
  finite += other.finite;
  zeros += other.zeros;
  input.nan += other.input.nan;
  input.inf += other.input.inf;
  result.nan += other.result.nan;
  result.inf += other.result.inf;
  for (std::size_t i = 0; i < exponents.size(); ++i) exponents[i] += other.exponents[i];
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] += other.codes[i];
}

void measure_piece(const Measurement& job, const Piece& piece, PieceScratch& scratch,
                   PieceSums& out) {
  const FpEnvGuard guard;
  Measuring(job, piece, scratch, out).run();
}

}  // namespace octavo
