// The sums of TDPBF16PS, the bf16 instruction of AMX's matrix tiles, bit for bit, and the order in
// which cpu/amx calls it: docs/numerics/gemm.md has both in words, and what of them the manual
// says. One instruction sums 32 products and the accumulator:
//   - elements 0, 2, 4 ... and 1, 3, 5 ... have a sum each, from zero, by fused multiply-adds;
//   - the two are added, and that is added to the accumulator;
//   - each of these rounds to nearest even and takes and gives zeros for subnormal numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "octavo/backend/reference/dequantized_internal.h"
#include "octavo/backend/reference/gemm_internal.h"

namespace octavo::reference {
namespace {

constexpr std::int64_t kStep = 32;         // products that one instruction sums
constexpr std::int64_t kLongestRun = 512;  // scales that change along K wait no longer

constexpr float kLeastNormal = std::numeric_limits<float>::min();

// A subnormal operand counts as a zero of its sign (DAZ).
float without_subnormal(float x) {
  return std::fabs(x) < kLeastNormal ? std::copysign(0.0F, x) : x;
}

// a b + c for operands that are not subnormal, a b of at most 16 significant bits, or b 1. A result
// that is tiny becomes a zero of its sign (FTZ). x86 decides that after rounding to 24 bits with an
// exponent that has no end: what is halfway or more from the last such number below 2^-126 to
// 2^-126 is 2^-126, the rest is flushed.
float fused(float a, float b, float c) {
  const float sum = std::fmaf(a, b, c);
  if (!(std::fabs(sum) <= kLeastNormal)) return sum;
  // fmaf rounded to subnormal steps, twice as wide as those. f64 has the exact sum, or one on the
  // same side of the limit: where 53 bits are not enough, a b is below 2^-163, and c, at least
  // 2^-126, decides.
  constexpr double kLeastKept = 0x1p-126 - 0x1p-151;
  const double exact = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
  return std::copysign(std::fabs(exact) >= kLeastKept ? kLeastNormal : 0.0F, sum);
}

float instruction(const float* a, const float* b, float accumulator) {
  float even = 0.0F, odd = 0.0F;
  for (std::int64_t i = 0; i < kStep; i += 2) {
    even = fused(a[i], b[i], even);
    odd = fused(a[i + 1], b[i + 1], odd);
  }
  return fused(fused(even, 1.0F, odd), 1.0F, accumulator);
}

bool scales_change(const GemmOperand& operand) {
  return operand.is_quantized() &&
         tile_extent(operand.quantized.tile.cols, operand.cols()) < operand.cols();
}

bool is_zero_tile(const QuantizedMatrix& from, std::int64_t grid_row, std::int64_t grid_col) {
  const std::int64_t high = tile_extent(from.tile.rows, from.codes.rows),
                     wide = tile_extent(from.tile.cols, from.codes.cols);
  for (std::int64_t row = grid_row * high; row < std::min((grid_row + 1) * high, from.codes.rows);
       ++row)
    for (std::int64_t col = grid_col * wide; col < std::min((grid_col + 1) * wide, from.codes.cols);
         ++col)
      if (load_value(from.codes, row, col) != 0.0) return false;
  return true;
}

// Are elements times the scales of their tiles exact in bf16, and far from its ends? A tile of
// zeros has the smallest scale there is, which does not count.
bool takes_scales(const GemmOperand& operand) {
  if (!scales_change(operand)) return true;
  const Matrix& scales = operand.quantized.scales;
  if (scales.dtype != DType::code) return false;
  if (scales.format == e4m3fn) return operand.quantized.codes.format.mantissa_bits <= 3;
  if (scales.format != e8m0fnu) return false;
  constexpr int kFar = 50;
  for (std::int64_t row = 0; row < scales.rows; ++row)
    for (std::int64_t col = 0; col < scales.cols; ++col) {
      const double scale = load_value(scales, row, col);
      if (!std::isfinite(scale) || std::abs(std::ilogb(scale)) <= kFar) continue;
      if (scale != 0x1p-127 || !is_zero_tile(operand.quantized, row, col)) return false;
    }
  return true;
}

// How K is cut: `count` runs of `length` products, each zero-padded to `padded`. After a run its
// sum is multiplied by scales.
struct Runs {
  bool scaled_elements = false;  // scales that change along K are multiplied into the elements
  std::int64_t length = 0, padded = 0, count = 0;
};

std::int64_t whole_steps(std::int64_t products) { return (products + kStep - 1) / kStep * kStep; }

Runs runs_of(const GemmJob& job) {
  const std::int64_t depth = job.a.cols();
  std::int64_t common = kLongestRun;
  for (const GemmOperand* operand : {&job.a, &job.b})
    if (scales_change(*operand)) common = std::gcd(common, operand->quantized.tile.cols);
  const bool scaled = common < kLongestRun && takes_scales(job.a) && takes_scales(job.b);
  const bool whole = scaled || (!scales_change(job.a) && !scales_change(job.b));
  const std::int64_t length = whole ? depth : common;
  if (depth == 0) return {};
  return {scaled, length, whole_steps(length), (depth + length - 1) / length};
}

struct Row {
  std::vector<float> elements;  // run after run, padded
  std::vector<float> scales;    // of each run: what its sum is multiplied by
};

Row row_of(const GemmOperand& operand, std::int64_t row, const Runs& runs) {
  Row to;
  to.elements.assign(static_cast<std::size_t>(runs.count * runs.padded), 0.0F);
  const QuantizedMatrix& from = operand.quantized;
  const bool in_elements = runs.scaled_elements && scales_change(operand);
  const std::int64_t tile_rows = tile_extent(from.tile.rows, operand.rows()),
                     tile_cols = tile_extent(from.tile.cols, operand.cols());
  for (std::int64_t run = 0; run < runs.count; ++run) {
    const std::int64_t first = run * runs.length,
                       end = std::min(operand.cols(), first + runs.length);
    for (std::int64_t k = first; k < end; ++k) {
      double element = load_value(operand.elements(), row, k);
      if (in_elements) element *= load_value(from.scales, row / tile_rows, k / tile_cols);
      to.elements[static_cast<std::size_t>(run * runs.padded + k - first)] =
          without_subnormal(static_cast<float>(element));
    }
    float scale = 1.0F;
    if (in_elements)
      scale = from.tensor_scale != nullptr ? *from.tensor_scale : 1.0F;
    else if (operand.is_quantized())
      scale = static_cast<float>(scale_at(from, row, first));
    to.scales.push_back(scale);
  }
  return to;
}

float sum_of(const Row& a, const Row& b, const Runs& runs, bool is_scaled) {
  float sum = 0.0F;
  for (std::int64_t run = 0; run < runs.count; ++run) {
    float part = 0.0F;
    for (std::int64_t k = run * runs.padded; k < (run + 1) * runs.padded; k += kStep)
      part = instruction(a.elements.data() + k, b.elements.data() + k, part);
    if (!is_scaled) return part;
    const auto i = static_cast<std::size_t>(run);
    sum = std::fmaf(part * b.scales[i], a.scales[i], sum);
  }
  return sum;
}

}  // namespace

void gemm_amx(const GemmJob& job) {
  const std::int64_t rows = job.out.rows, cols = job.out.cols;
  const Runs runs = runs_of(job);
  const bool is_scaled = job.a.is_quantized() || job.b.is_quantized();
  constexpr std::int64_t kRowsAtOnce = 64;  // so that a row of B is decoded once for many sums
  std::vector<Row> a;
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t end = std::min(rows, first + kRowsAtOnce);
    a.clear();
    for (std::int64_t m = first; m < end; ++m) a.push_back(row_of(job.a, m, runs));
    for (std::int64_t n = 0; n < cols; ++n) {
      const Row b = row_of(job.b, n, runs);
      for (std::int64_t m = first; m < end; ++m)
        epilogue(job, m, n,
                 static_cast<double>(
                     sum_of(a[static_cast<std::size_t>(m - first)], b, runs, is_scaled)));
    }
  }
}

}  // namespace octavo::reference
