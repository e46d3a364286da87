// Scaled values to E4M3 in f16 lanes.
//
// The encoder of isa/neon/encode_kernel.h, simplified. Floor and ceil of a product to the upper
// half of its f32 add up to twice that half, one more where not exact, and without the sign: a
// narrowing after which nothing is rounded twice. The sum that rounds has the field's mantissa in
// its last bits; its exponent, shifted onto them, makes the field, except bit 7, which is the
// sign's.
//
// 30 operations for sixteen f32, 2 more where products may exceed the largest value.
#pragma once

#include "octavo/backend/cpu/isa/neon/encode_kernel.h"
#include "octavo/format/decode.h"

namespace octavo::cpu {
namespace {

constexpr int kMantissaBits = 3, kDropped = 10 - kMantissaBits;  // of an f16's
constexpr int kBfloatToHalf = 127 - 15;

// The offset of the mantissa in the sum that makes fields right modulo 128. It must be even, or
// ties would not go to even, and leave room for a mantissa below bit 7.
inline std::uint32_t field_base(const Format& format) {
  const int exponent = format.min_exponent() + 15 + kDropped;
  return static_cast<std::uint32_t>(-(exponent << kMantissaBits)) & 127u;
}

struct E4m3Lanes {
  uint16x8_t limit;  // as a doubled bf16
  uint16x8_t smallest, magic;

  explicit E4m3Lanes(const Format& format) {
    const auto most = static_cast<float>(max_value(format));
    limit = vdupq_n_u16(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(most) >> 15));
    smallest = vdupq_n_u16(static_cast<std::uint16_t>((format.min_exponent() + 15) << 10));
    magic = vdupq_n_u16(static_cast<std::uint16_t>((kDropped << 10) + field_base(format)));
  }
};

// The constants of a group's tile.
struct TileLanes {
  float32x4_t factor;
  uint8x16_t poisoned;  // all ones, or zero

  TileLanes() = default;
  [[gnu::always_inline]] TileLanes(const float* f, const std::uint8_t* p)
      : factor(vld1q_dup_f32(f)), poisoned(vld1q_dup_u8(p)) {}
};

// Codes of several groups of sixteen products, which load(g, wide) loads, step by step for all of
// them: the core's reorder window is too short to interleave them itself.
template <bool kClamps, int kGroups, typename Load>
[[gnu::always_inline]] inline void codes_of_groups(const E4m3Lanes& k, const Load& load,
                                                   uint8x16_t* codes) {
  constexpr int kVectors = 2 * kGroups;
  const uint32x4_t almost = vdupq_n_u32(0xFFFF);
  uint16x8_t lane[kVectors], big[kVectors];
  uint8x16_t tops[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    uint32x4_t wide[4];
    load(g, wide);
    uint16x8_t floor[2];
    for (int i = 0; i < 2; ++i) {
      const uint32x4_t a = wide[2 * i], b = wide[2 * i + 1];
      floor[i] = vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
      const uint16x8_t ceil = vaddhn_high_u32(vaddhn_u32(a, almost), b, almost);
      lane[2 * g + i] = vaddq_u16(floor[i], ceil);
    }
    tops[g] = vuzp2q_u8(vreinterpretq_u8_u16(floor[0]), vreinterpretq_u8_u16(floor[1]));
  }
  if constexpr (kClamps)
    for (int v = 0; v < kVectors; ++v) lane[v] = vminq_u16(lane[v], k.limit);
  for (int v = 0; v < kVectors; ++v) lane[v] = vqsubq_u16(lane[v], vdupq_n_u16(kBfloatToHalf << 8));
  for (int v = 0; v < kVectors; ++v) lane[v] = vshlq_n_u16(lane[v], 2);
  for (int v = 0; v < kVectors; ++v) big[v] = vandq_u16(lane[v], vdupq_n_u16(0x7C00));
  for (int v = 0; v < kVectors; ++v) big[v] = vmaxq_u16(big[v], k.smallest);
  for (int v = 0; v < kVectors; ++v) big[v] = vaddq_u16(big[v], k.magic);
  for (int v = 0; v < kVectors; ++v)
    lane[v] = vreinterpretq_u16_f16(
        vaddq_f16(vreinterpretq_f16_u16(lane[v]), vreinterpretq_f16_u16(big[v])));
  for (int v = 0; v < kVectors; ++v) lane[v] = vsraq_n_u16(lane[v], lane[v], kDropped);
  for (int g = 0; g < kGroups; ++g) {
    const uint8x16_t field =
        vuzp1q_u8(vreinterpretq_u8_u16(lane[2 * g]), vreinterpretq_u8_u16(lane[2 * g + 1]));
    codes[g] = vbslq_u8(vdupq_n_u8(0x80), tops[g], field);
  }
}

// Contiguous groups, each within a tile.
template <DType kSource, bool kClamps, int kGroups>
[[gnu::always_inline]] inline void encode_groups(const E4m3Lanes& k, const std::byte* from,
                                                 const TileLanes* tile, uint8x16_t poison,
                                                 std::uint8_t* to) {
  const auto load = [&](int g, uint32x4_t wide[4]) __attribute__((always_inline)) {
    F32Source<kSource>::load_scaled(from + g * kGroup * element_bytes(kSource), tile[g].factor,
                                    wide);
  };
  uint8x16_t codes[kGroups];
  codes_of_groups<kClamps, kGroups>(k, load, codes);
  for (int g = 0; g < kGroups; ++g)
    vst1q_u8(to + g * kGroup, vbslq_u8(tile[g].poisoned, poison, codes[g]));
}

// Whether this encoder handles the format: like E4M3 in mantissa width and special codes, with an
// exponent range well inside f16.
inline bool e4m3_lanes_fit(const Encoder& encoder) {
  return encoder.policy.rounding == Rounding::nearest_even &&
         encoder.format.mantissa_bits == kMantissaBits &&
         epilogue_of(encoder) == Epilogue::eight_bits && lanes_fit(encoder, 10, 15, 7) &&
         field_base(encoder.format) < 112;
}

}  // namespace
}  // namespace octavo::cpu
