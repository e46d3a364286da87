#include "octavo/backend/cpu/gemm/gemm_scale_range.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr int kBias = 127;  // of f32, bf16 and e8m0
constexpr std::int64_t kPiece = 512;

// Scans exponent fields. All ones is Inf or NaN; 0 is zero or subnormal.
template <typename Word, int kMantissa>
Exponents scan_exponents(const Matrix& matrix) {
  constexpr Word kMask = 0xFF;
  Word least = kMask, most = 0;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    alignas(64) Word words[kPiece];
    for (std::int64_t col = 0; col < matrix.cols; col += kPiece) {
      const std::int64_t n = std::min(kPiece, matrix.cols - col);
      auto* const stage = reinterpret_cast<std::byte*>(words);
      const void* from = gather(matrix, row, col, n, stage);
      if (from != stage) std::memcpy(words, from, static_cast<std::size_t>(n) * sizeof(Word));
      for (std::int64_t i = 0; i < n; ++i) {
        const auto field = static_cast<Word>(words[i] >> kMantissa & kMask);
        const bool is_zero = static_cast<Word>(words[i] << 1) == 0;
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

// Of the values; in a data-oblivious job, which may not look at them, of their type.
Exponents exponents_of(const Matrix& values, bool oblivious) {
  Exponents all;
  switch (values.dtype) {
    case DType::f32:
      if (!oblivious) return scan_exponents<std::uint32_t, 23>(values);
      all.add(-149, 127);
      return all;
    case DType::bf16:
      if (!oblivious) return scan_exponents<std::uint16_t, 7>(values);
      all.add(-133, 127);
      return all;
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

// Are all elements of the tile zero?
bool is_zero_tile(const QuantizedMatrix& from, std::int64_t grid_row, std::int64_t grid_col) {
  const std::int64_t high = tile_extent(from.tile.rows, from.codes.rows),
                     wide = tile_extent(from.tile.cols, from.codes.cols);
  const std::int64_t last_row = std::min((grid_row + 1) * high, from.codes.rows),
                     last_col = std::min((grid_col + 1) * wide, from.codes.cols);
  const Format& format = from.codes.format;
  const auto magnitude = static_cast<std::uint8_t>(
      format.has_negative_zero() ? format.magnitude_mask() : format.code_mask());
  for (std::int64_t row = grid_row * high; row < last_row; ++row)
    for (std::int64_t col = grid_col * wide; col < last_col; col += kStage) {
      alignas(64) std::byte stage[kStage];
      const std::int64_t n = std::min(kStage, last_col - col);
      const auto* codes = static_cast<const std::uint8_t*>(gather(from.codes, row, col, n, stage));
      std::uint8_t seen = 0;
      for (std::int64_t i = 0; i < n; ++i) seen |= codes[i] & magnitude;
      if (seen != 0) return false;
    }
  return true;
}

// e8m0 has no mantissa and no zero: 0 is 2^-127, which tiles of zeros have, and 255 is NaN. Where
// all tiles of that scale are zeros it does not count. Bytes are compared modulo 256, so that
// compilers vectorise both extremes: 255 + 1 is the smallest, 0 - 1 the largest.
struct E8m0Scan {
  std::uint8_t most = 0, least_above_0 = 255;  // both off by one, as said
  bool any_0 = false;

  void add(const E8m0Scan& other) {
    most = std::max(most, other.most);
    least_above_0 = std::min(least_above_0, other.least_above_0);
    any_0 = any_0 || other.any_0;
  }
};

// Scales of tiles from `first` on, counted row after row.
E8m0Scan scan_some(const QuantizedMatrix& from, const std::uint8_t* bytes, std::int64_t n,
                   std::int64_t first) {
  std::uint8_t high = 0, low = 255, lowest = 255;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto above = static_cast<std::uint8_t>(bytes[i] + 1),
               below = static_cast<std::uint8_t>(bytes[i] - 1);
    high = above > high ? above : high;
    low = below < low ? below : low;
    lowest = bytes[i] < lowest ? bytes[i] : lowest;
  }
  E8m0Scan found{high, low};
  const bool may_be_zeros = from.codes.dtype == DType::code && from.codes.format.bits() <= 8 &&
                            from.codes.format.has_zero;
  const std::int64_t cols = from.scales.cols;
  for (std::int64_t i = 0; lowest == 0 && i < n && !found.any_0; ++i)
    found.any_0 = bytes[i] == 0 &&
                  !(may_be_zeros && is_zero_tile(from, (first + i) / cols, (first + i) % cols));
  return found;
}

Exponents scan_e8m0(const QuantizedMatrix& from, int threads) {
  const Matrix& scales = from.scales;
  E8m0Scan found;
  if (is_contiguous(scales) && scales.row_pitch == scales.cols) {
    // Rows that follow each other are one: theirs are short.
    constexpr std::int64_t kEach = 32 << 10;
    constexpr int kMaxParts = 64;
    const std::int64_t all = scales.rows * scales.cols;
    const int parts =
        static_cast<int>(std::clamp<std::int64_t>(all / kEach, 1, std::min(threads, kMaxParts)));
    E8m0Scan of_part[kMaxParts];
    parallel_parts(all, parts, parts, [&](int part, std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; at += kStage)
        of_part[part].add(scan_some(from,
                                    reinterpret_cast<const std::uint8_t*>(element(scales, 0, at)),
                                    std::min(kStage, end - at), at));
    });
    for (int part = 0; part < parts; ++part) found.add(of_part[part]);
  } else {
    for (std::int64_t row = 0; row < scales.rows; ++row)
      for (std::int64_t col = 0; col < scales.cols; col += kStage) {
        alignas(64) std::byte stage[kStage];
        const std::int64_t n = std::min(kStage, scales.cols - col);
        found.add(scan_some(from,
                            static_cast<const std::uint8_t*>(gather(scales, row, col, n, stage)), n,
                            row * scales.cols + col));
      }
  }
  Exponents all;
  if (found.any_0) all.add(-kBias, -kBias);
  // 254 is NaN's 255: nothing but zeros and NaN.
  if (found.least_above_0 < 254) all.add(found.least_above_0 + 1 - kBias, found.most - 1 - kBias);
  return all;
}

Exponents scales_of(const GemmOperand& operand, bool oblivious, int threads) {
  if (!operand.is_quantized()) return one();
  const Matrix& scales = operand.quantized.scales;
  if (scales.dtype != DType::code) return exponents_of(scales, oblivious);
  Exponents all;
  if (scales.format == e8m0fnu) {
    if (!oblivious) return scan_e8m0(operand.quantized, threads);
    all.add(-kBias, kBias);
    return all;
  }
  all.add(scales.format.min_step_exponent(), std::ilogb(max_value(scales.format)));
  return all;
}

Exponents level(const GemmOperand& operand, bool oblivious) {
  if (operand.quantized.tensor_scale == nullptr) return one();
  Exponents all;
  if (oblivious) {
    all.add(-149, 127);
    return all;
  }
  const auto value = static_cast<double>(*operand.quantized.tensor_scale);
  if (value != 0.0 && std::isfinite(value)) all.add(std::ilogb(value), std::ilogb(value));
  return all;
}

Exponents elements(const GemmOperand& operand, bool oblivious) {
  if (!operand.is_quantized()) return exponents_of(operand.values, oblivious);
  const Format& format = operand.quantized.codes.format;
  Exponents all;
  // The lowest integer of two's complement is the next power of two.
  const int top = std::ilogb(max_value(format)) + (format.twos_complement ? 1 : 0);
  all.add(format.min_step_exponent(), top);
  return all;
}

}  // namespace

void Exponents::add(int least, int most) {
  low = any ? std::min(low, least) : least;
  high = any ? std::max(high, most) : most;
  any = true;
}

const Exponents& GemmScaleRange::tile_scales(PanelOf side) {
  std::optional<Exponents>& known = scales_[side == PanelOf::a ? 0 : 1];
  if (!known) known = scales_of(side == PanelOf::a ? job_.a : job_.b, job_.oblivious, threads_);
  return *known;
}

GemmScaleRange::Factors GemmScaleRange::factors(PanelOf side, AppliedScales applied,
                                                PackedType type) {
  const GemmOperand& operand = side == PanelOf::a ? job_.a : job_.b;
  // What elements are multiplied by so that the panels' type has them; their scale is divided by
  // it.
  int power = 0;
  if (type == PackedType::f16) power = std::ilogb(f16_factor(operand));
  if (type == PackedType::i8) power = -operand.quantized.codes.format.min_step_exponent();
  Factors made{.elements = times_power(elements(operand, job_.oblivious), power),
               .scale = times_power(level(operand, job_.oblivious), -power)};
  const bool in_elements =
      applied == AppliedScales::all || (applied == AppliedScales::tiles && scales_change(operand));
  Exponents& with_tiles = in_elements ? made.elements : made.scale;
  with_tiles = times(with_tiles, tile_scales(side));
  return made;
}

bool GemmScaleRange::may_scale_sums(std::int64_t run, AppliedScales to_a, AppliedScales to_b,
                                    PackedType type) {
  constexpr int kLeast = -126, kMax = 127;
  const auto [a, a_scale] = factors(PanelOf::a, to_a, type);
  const auto [b, b_scale] = factors(PanelOf::b, to_b, type);
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

bool GemmScaleRange::applies_exactly(PanelOf side) {
  const GemmOperand& operand = side == PanelOf::a ? job_.a : job_.b;
  const QuantizedMatrix& from = operand.quantized;
  if (!scales_change(operand)) return true;
  if (from.scales.dtype != DType::code) return false;
  // Significands of 4 bits or fewer times one of 4 bits.
  if (from.scales.format == e4m3fn) return from.codes.format.mantissa_bits <= 3;
  if (from.scales.format != e8m0fnu) return false;
  // Near enough to 1 that products of the smallest values of e4m3 are normal; of e5m2, below 2^-126
  // only where they are negligible.
  constexpr int kFar = 50;
  const Exponents& scales = tile_scales(side);
  return !scales.any || (scales.low >= -kFar && scales.high <= kFar);
}

}  // namespace octavo::cpu
