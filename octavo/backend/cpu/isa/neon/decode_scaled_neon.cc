// Decoding to bf16 with the scale of each tile multiplied in, for packed panels of MX and NVFP4
// operands. Products are exact in bf16 (Isa::decode_scaled), so that the upper half of the f32
// product is the result, and NaN and Inf come out as of any product.
//
//   e2m1fn   the eight magnitudes of a tile are multiplied once: a table of sixteen results, signs
//            included, in two registers. 6 operations a tile, and 5 for sixteen codes
//   others   sixteen codes by byte planes, widened to f32 and multiplied: 12 operations more
#include <arm_neon.h>

#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kLanes = 16;

inline uint16x8_t upper_halves(float32x4_t low, float32x4_t high) {
  return vuzp2q_u16(vreinterpretq_u16_f32(low), vreinterpretq_u16_f32(high));
}

// The sixteen results of e2m1fn in a tile.
class ScaledTable {
 public:
  explicit ScaledTable(float scale) {
    static constexpr float kMagnitudes[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
    const uint8x16_t magnitudes =
        vreinterpretq_u8_u16(upper_halves(vmulq_n_f32(vld1q_f32(kMagnitudes), scale),
                                          vmulq_n_f32(vld1q_f32(kMagnitudes + 4), scale)));
    low_ = vuzp1q_u8(magnitudes, magnitudes);
    const uint8x16_t high = vuzp2q_u8(magnitudes, magnitudes);
    high_ = veorq_u8(high, vcombine_u8(vdup_n_u8(0), vdup_n_u8(0x80)));
  }
  [[gnu::always_inline]] void operator()(uint8x16_t code, std::uint16_t* to) const {
    const uint8x16_t low = vqtbl1q_u8(low_, code), high = vqtbl1q_u8(high_, code);
    vst1q_u16(to, vreinterpretq_u16_u8(vzip1q_u8(low, high)));
    vst1q_u16(to + 8, vreinterpretq_u16_u8(vzip2q_u8(low, high)));
  }

 private:
  uint8x16_t low_, high_;
};

template <typename PlanesOf>
[[gnu::always_inline]] inline void scale_planes(const PlanesOf& planes_of, uint8x16_t code,
                                                float scale, std::uint16_t* to) {
  const Planes planes = planes_of(code);
  const uint16x8_t zero = vdupq_n_u16(0);
  const uint16x8_t halves[2] = {vreinterpretq_u16_u8(vzip1q_u8(planes.low, planes.high)),
                                vreinterpretq_u16_u8(vzip2q_u8(planes.low, planes.high))};
  for (int i = 0; i < 2; ++i) {
    const float32x4_t low = vreinterpretq_f32_u16(vzip1q_u16(zero, halves[i])),
                      high = vreinterpretq_f32_u16(vzip2q_u16(zero, halves[i]));
    vst1q_u16(to + 8 * i, upper_halves(vmulq_n_f32(low, scale), vmulq_n_f32(high, scale)));
  }
}

// Calls tile_of(scale) for each tile and what it returns for each sixteen codes of it. The last
// codes of a row may be fewer.
template <typename TileOf>
[[gnu::always_inline]] inline void decode_tiles(const void* codes, std::uint16_t* values,
                                                std::int64_t n, const float* scales,
                                                std::int64_t width, const TileOf& tile_of) {
  const auto* from = static_cast<const std::uint8_t*>(codes);
  for (std::int64_t begin = 0; begin < n; begin += width, ++scales) {
    const auto tile = tile_of(*scales);
    const std::int64_t end = std::min(begin + width, n);
    std::int64_t done = begin;
    for (; done + kLanes <= end; done += kLanes) tile(vld1q_u8(from + done), values + done);
    if (done == end) continue;
    const auto left = static_cast<std::size_t>(end - done);
    std::uint8_t some[kLanes] = {};
    std::uint16_t made[kLanes];
    std::memcpy(some, from + done, left);
    tile(vld1q_u8(some), made);
    std::memcpy(values + done, made, left * sizeof(std::uint16_t));
  }
}

void decode_e2m1(const Decoder&, const void* codes, std::uint16_t* values, std::int64_t n,
                 const float* scales, std::int64_t width) {
  decode_tiles(codes, values, n, scales, width, [](float scale) { return ScaledTable(scale); });
}

template <typename PlanesOf>
void decode_planes(const Decoder& decoder, const void* codes, std::uint16_t* values, std::int64_t n,
                   const float* scales, std::int64_t width) {
  const PlanesOf planes_of(decoder.format);
  decode_tiles(codes, values, n, scales, width, [&](float scale) {
    return [&planes_of, scale ](uint8x16_t code, std::uint16_t * to)
        __attribute__((always_inline)) {
      scale_planes(planes_of, code, scale, to);
    };
  });
}

}  // namespace

DecodeScaled neon_decode_scaled(const Decoder& decoder) {
  using E4m3 = ShiftedPlanes<BfloatTarget, 3>;
  using E5m2 = ShiftedPlanes<BfloatTarget, 2>;
  const Format& format = decoder.format;
  if (format == e2m1fn) return decode_e2m1;
  if (TablePlanes<BfloatTarget>::fits(format)) return decode_planes<TablePlanes<BfloatTarget>>;
  if (format.mantissa_bits == 3 && E4m3::fits(format)) return decode_planes<E4m3>;
  if (format.mantissa_bits == 2 && E5m2::fits(format)) return decode_planes<E5m2>;
  return nullptr;
}

}  // namespace octavo::cpu
