#include "octavo/backend/cpu/quantize/scale_batch.h"

#include <algorithm>
#include <bit>

#include "octavo/backend/cpu/masks.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/base/fp_env.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

constexpr std::uint32_t kInfBits = 0x7F800000u;

std::uint32_t power_bits(std::int32_t exponent) {
  const auto normal = static_cast<std::uint32_t>(exponent + 127) << 23;
  return select(mask_of(exponent < -126), 0x00400000u, normal);
}

// Exponents through f64, where every f32 is a normal number.
void power_of_two_scales(const ScaleSpec& spec, const Format& element, const std::uint32_t* amax,
                         std::int64_t n, ScaleBatch& out) {
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  const auto top = std::bit_cast<std::uint64_t>(max_value(element));
  const int top_exponent = static_cast<int>(top >> 52);
  const int kept = element.twos_complement ? element.magnitude_bits() - 1
                                           : static_cast<int>(element.mantissa_bits);
  // A mantissa from here on adds one to the exponent.
  const std::uint64_t bump_from = spec.rule == ScaleRule::rceil  ? (top & kMantissa) + 1
                                  : spec.rule == ScaleRule::ceil ? 1
                                  : spec.rule == ScaleRule::even
                                      ? (kMantissa + 1) - (std::uint64_t{1} << (51 - kept))
                                      : kMantissa + 1;
  const ExponentRange range = exponent_range(spec.format);
  const auto span = static_cast<std::uint32_t>(range.most - range.least);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto wide =
        std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(amax[i])));
    std::int32_t exponent = static_cast<std::int32_t>(wide >> 52) - top_exponent +
                            static_cast<std::int32_t>((wide & kMantissa) >= bump_from) +
                            spec.margin;
    const auto above = static_cast<std::uint32_t>(exponent - range.least);
    exponent = range.least +
               static_cast<std::int32_t>(smaller(above & mask_of(exponent > range.least), span));
    const std::uint32_t scale = power_bits(exponent);
    out.scale[i] = std::bit_cast<float>(scale);
    out.factor[i] = std::bit_cast<float>(power_bits(-exponent));
    out.bits[i] = scale;
    if (spec.format == ScaleFormat::e8m0) out.bits[i] = static_cast<std::uint32_t>(exponent + 127);
  }
}

// Scales of 16 or 8 bits go through the encoder: f32 to codes and back.
void store_through_codes(const Isa& isa, const Format& format, std::int64_t n, float* scales,
                         std::uint32_t* bits, std::uint32_t least) {
  alignas(64) std::uint16_t wide[kMaxTiles];
  alignas(64) std::uint8_t narrow[kMaxTiles];
  const bool one_byte = format.code_bytes() == 1;
  void* codes = one_byte ? static_cast<void*>(narrow) : static_cast<void*>(wide);
  const Encoder encoder = make_encoder(format, {}, DType::f32);
  isa.encode(encoder)(encoder, scales, codes, n, 0);
  if (one_byte) {
    for (std::int64_t i = 0; i < n; ++i) bits[i] = larger(std::uint32_t{narrow[i]}, least);
  } else {
    for (std::int64_t i = 0; i < n; ++i) bits[i] = larger(std::uint32_t{wide[i]}, least);
  }
  // Positive and not NaN: the code moved to where f32 has its exponent, times a power of two. Exact
  // for subnormal codes as well.
  const int shift = 23 - format.mantissa_bits;
  const float up = f32_power_of_two(127 - format.bias);
  for (std::int64_t i = 0; i < n; ++i) scales[i] = std::bit_cast<float>(bits[i] << shift) * up;
}

void quotient_scales(const Isa& isa, const ScaleSpec& spec, const Format& element,
                     const std::uint32_t* amax, std::int64_t n, float tensor_scale,
                     ScaleBatch& out) {
  const auto max = static_cast<float>(max_value(element));
  const float margin = f32_power_of_two(spec.margin);
  const bool two_levels = spec.format == ScaleFormat::e4m3_f32;
  for (std::int64_t i = 0; i < n; ++i) {
    const float quotient = std::bit_cast<float>(amax[i]) / max;
    const float wanted =
        two_levels ? quotient / tensor_scale * margin : larger(quotient * margin, kMinScale);
    out.scale[i] = smaller(wanted, kMaxFloat);
    out.bits[i] = std::bit_cast<std::uint32_t>(out.scale[i]);
  }
  if (spec.format != ScaleFormat::f32)
    store_through_codes(isa, stored_format(spec.format), n, out.scale, out.bits, 1);
  const bool division = divides(spec);
  for (std::int64_t i = 0; i < n; ++i) {
    if (two_levels) out.scale[i] *= tensor_scale;
    out.factor[i] = division ? out.scale[i] : smaller(1.0F / out.scale[i], kMaxFloat);
  }
}

}  // namespace

std::array<TileScale, 128> two_level_scales(const ScaleSpec& spec, float tensor_scale) {
  const FpEnvGuard guard;
  std::array<TileScale, 128> of_code;
  for (std::uint32_t code = 0; code < of_code.size(); ++code)
    of_code[code] = scale_of_code(spec, code, tensor_scale);
  return of_code;
}

void make_scales(const Isa& isa, const ScaleSpec& spec, const Format& element,
                 const std::uint32_t* amax, std::int64_t n, TensorLevel tensor, ScaleBatch& out) {
  const float tensor_scale = tensor.scale;
  if (is_peer(spec.arith)) {
    for (std::int64_t i = 0; i < n; ++i) {
      const TileScale made =
          tile_scale(spec, element, std::bit_cast<float>(amax[i]), tensor_scale, tensor.amax);
      out.bits[i] = made.bits;
      out.scale[i] = made.scale;
      out.factor[i] = made.factor;
      out.poisoned[i] = made.scale != made.scale ? 0xFF : 0;
    }
    return;
  }
  alignas(64) std::uint32_t finite[kMaxTiles];
  const auto least = std::bit_cast<std::uint32_t>(spec.min_amax);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t raised = larger(amax[i], least);
    finite[i] = raised & mask_of(raised < kInfBits);
  }
  if (is_power_of_two_rule(spec.rule)) {
    power_of_two_scales(spec, element, finite, n, out);
    if (spec.format == ScaleFormat::bf16 || spec.format == ScaleFormat::f16)
      store_through_codes(isa, stored_format(spec.format), n, out.scale, out.bits, 1);
  } else {
    quotient_scales(isa, spec, element, finite, n, tensor_scale, out);
  }
  const TileScale zero = zero_scale(spec, tensor_scale), poison = poisoned_scale(spec.format);
  const auto zero_value = std::bit_cast<std::uint32_t>(zero.scale);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t is_zero = mask_of(finite[i] == 0), is_poison = mask_of(amax[i] >= kInfBits);
    out.bits[i] = select(is_poison, poison.bits, select(is_zero, zero.bits, out.bits[i]));
    const auto scale = std::bit_cast<std::uint32_t>(out.scale[i]);
    out.scale[i] =
        std::bit_cast<float>(select(is_poison, 0x7FC00000u, select(is_zero, zero_value, scale)));
    out.poisoned[i] = static_cast<std::uint8_t>(is_poison);
  }
}

void give_scale(const ScaleSpec& spec, float inv_scale, ScaleBatch& out) {
  const TileScale given = from_inv_scale(spec.format, inv_scale);
  out.bits[0] = given.bits;
  out.scale[0] = given.scale;
  out.factor[0] = given.factor;
  out.poisoned[0] = given.scale != given.scale ? 0xFF : 0;
}

ScaleDecoder scale_decoder(const Isa& isa, const Matrix& scales) {
  if (scales.dtype == DType::f32) return {};
  const Format format = scales.dtype == DType::bf16  ? bf16_format
                        : scales.dtype == DType::f16 ? f16_format
                                                     : scales.format;
  const Decoder decoder{.format = format, .target = DType::f32};
  return {decoder, isa.decode(decoder)};
}

void load_scales(const ScaleDecoder& by, const Matrix& scales, std::int64_t grid_row,
                 std::int64_t grid_col, std::int64_t n, float* out) {
  alignas(64) std::byte stage[kMaxTiles * 4];
  const void* stored = gather(scales, grid_row, grid_col, n, stage);
  if (by.decode != nullptr) return by.decode(by.decoder, stored, out, n);
  std::copy_n(static_cast<const float*>(stored), n, out);
}

void load_scales(const Isa& isa, const Matrix& scales, std::int64_t grid_row, std::int64_t grid_col,
                 std::int64_t n, float* out) {
  load_scales(scale_decoder(isa, scales), scales, grid_row, grid_col, n, out);
}

void store_scales(const Matrix& scales, std::int64_t grid_row, std::int64_t grid_col,
                  std::int64_t n, const std::uint32_t* bits) {
  const int bytes = bytes_of(scales);
  std::byte* to = element(scales, grid_row, grid_col);
  if (bytes == 1 && scales.col_stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<std::byte>(bits[i]);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i, to += scales.col_stride)
    std::copy_n(reinterpret_cast<const std::byte*>(&bits[i]), bytes, to);  // little endian
}

}  // namespace octavo::cpu
