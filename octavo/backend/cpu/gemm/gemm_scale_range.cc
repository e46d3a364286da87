#include "octavo/backend/cpu/gemm/gemm_scale_range.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "octavo/backend/cpu/matrix_io.h"

namespace octavo::cpu {
namespace {

// The exponent range of numbers that are not zero, Inf or NaN (those pass through any product
// unchanged): 2^low <= |x| < 2^(high + 1), or empty.
struct Exponents {
  int low = 0, high = 0;
  bool any = false;

  void add(int least, int most) {
    low = any ? std::min(low, least) : least;
    high = any ? std::max(high, most) : most;
    any = true;
  }
};

constexpr int kBias = 127;  // of f32, bf16 and e8m0
constexpr std::int64_t kPiece = 512;

// Scans exponent fields. All ones is Inf or NaN; 0 is zero or subnormal, except in e8m0, which has
// no mantissa: an ordinary number there.
template <typename Word, int kMantissa>
Exponents scan_exponents(const Matrix& matrix) {
  constexpr Word kMask = 0xFF;
  Word least = kMask, most = 0;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::byte* at = element(matrix, row, 0);
    Word words[kPiece];
    for (std::int64_t col = 0; col < matrix.cols; col += kPiece) {
      const std::int64_t n = std::min(kPiece, matrix.cols - col);
      const std::byte* from = at + col * matrix.col_stride;
      if (matrix.col_stride == sizeof(Word)) {
        std::memcpy(words, from, static_cast<std::size_t>(n) * sizeof(Word));
      } else {
        for (std::int64_t i = 0; i < n; ++i)
          std::memcpy(words + i, from + i * matrix.col_stride, sizeof(Word));
      }
      for (std::int64_t i = 0; i < n; ++i) {
        const auto field = static_cast<Word>(words[i] >> kMantissa & kMask);
        const bool is_zero = kMantissa != 0 && static_cast<Word>(words[i] << 1) == 0;
        const Word low = is_zero ? kMask : field, high = field == kMask ? Word{0} : field;
        least = low < least ? low : least;
        most = high > most ? high : most;
      }
    }
  }
  Exponents all;
  if (least != kMask)
    all.add((least == 0 ? -kMantissa : static_cast<int>(least)) - kBias,
            static_cast<int>(most) - kBias);
  return all;
}

Exponents exponents_of(const Matrix& values) {
  Exponents all;
  switch (values.dtype) {
    case DType::f32:
      return scan_exponents<std::uint32_t, 23>(values);
    case DType::bf16:
      return scan_exponents<std::uint16_t, 7>(values);
    case DType::f16:
      all.add(-24, 15);
      return all;
    default:
      all.add(-1074, 1023);
      return all;
  }
}

Exponents one() {
  Exponents all;
  all.add(0, 0);
  return all;
}

// The range of a product: each factor may be just below the next power of two.
Exponents times(const Exponents& x, const Exponents& y) {
  Exponents all;
  if (x.any && y.any) all.add(x.low + y.low, x.high + y.high + 1);
  return all;
}

Exponents times_power(Exponents all, int exponent) {
  all.low += exponent;
  all.high += exponent;
  return all;
}

Exponents tile_scales(const GemmOperand& operand) {
  if (!operand.is_quantized()) return one();
  const Matrix& scales = operand.quantized.scales;
  if (scales.dtype != DType::code) return exponents_of(scales);
  if (scales.format == e8m0fnu) return scan_exponents<std::uint8_t, 0>(scales);
  Exponents all;
  all.add(scales.format.min_step_exponent(), std::ilogb(max_value(scales.format)));
  return all;
}

Exponents level(const GemmOperand& operand) {
  if (operand.quantized.tensor_scale == nullptr) return one();
  Exponents all;
  const auto value = static_cast<double>(*operand.quantized.tensor_scale);
  if (value != 0.0 && std::isfinite(value)) all.add(std::ilogb(value), std::ilogb(value));
  return all;
}

Exponents elements(const GemmOperand& operand) {
  if (!operand.is_quantized()) return exponents_of(operand.values);
  const Format& format = operand.quantized.codes.format;
  Exponents all;
  all.add(format.min_step_exponent(), std::ilogb(max_value(format)));
  return all;
}

}  // namespace

bool may_scale_sums(const GemmJob& job, std::int64_t run, AppliedScales applied_scales) {
  constexpr int kLeast = -126, kMax = 127;
  const bool in_f16 = job.accumulator == Accumulator::f16;
  const int a_factor = in_f16 ? std::ilogb(f16_factor(job.a)) : 0,
            b_factor = in_f16 ? std::ilogb(f16_factor(job.b)) : 0;
  Exponents a = times_power(elements(job.a), a_factor), b = times_power(elements(job.b), b_factor),
            a_scale = times_power(level(job.a), -a_factor),
            b_scale = times_power(level(job.b), -b_factor);
  if (applied_scales == AppliedScales::none) {
    a_scale = times(a_scale, tile_scales(job.a));
    b_scale = times(b_scale, tile_scales(job.b));
  } else {
    a = times(a, tile_scales(job.a));
    b = times(b, tile_scales(job.b));
  }
  const Exponents product = times(a, b), scaled = times(product, b_scale);
  if (!scaled.any || !a_scale.any) return true;
  if (std::max(a_scale.high, b_scale.high) > kMax) return false;
  const int longest = std::bit_width(static_cast<std::uint64_t>(run));
  if (std::max(product.high, scaled.high) + longest > kMax) return false;
  // Bits lost below the least normal number stay below it if the sum is not scaled up afterwards.
  const bool sum_is_normal = product.low >= kLeast || a_scale.high + b_scale.high < 0;
  const bool scaled_is_normal = scaled.low >= kLeast || a_scale.high < 0;
  return sum_is_normal && scaled_is_normal;
}

bool applies_scales_exactly(const GemmOperand& operand) {
  const QuantizedMatrix& from = operand.quantized;
  if (!operand.is_quantized() || tile_extent(from.tile.cols, operand.cols()) == operand.cols())
    return true;
  if (from.scales.dtype != DType::code) return false;
  // Significands of 4 bits or fewer times one of 4 bits.
  if (from.scales.format == e4m3fn) return from.codes.format.mantissa_bits <= 3;
  if (from.scales.format != e8m0fnu) return false;
  // Near enough to 1 that products of the smallest values of e4m3 are normal; of e5m2, below 2^-126
  // only where they are negligible.
  constexpr int kFar = 50;
  const Exponents scales = tile_scales(operand);
  return !scales.any || (scales.low >= -kFar && scales.high <= kFar);
}

}  // namespace octavo::cpu
