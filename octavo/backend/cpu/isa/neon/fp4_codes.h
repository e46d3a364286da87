// Sixteen f32 to E2M1, rounded to nearest even and saturating: 0 .5 1 1.5 2 3 4 6.
//
// The exponent and the first mantissa bit of a value choose one of sixteen cells (and what lies
// above them all), each of which has at most one point where the code changes: so a code is a table
// of cells, less one below a second table's point. What tells a tie from its neighbours is the rest
// of the mantissa, of which a byte does: seven bits, and one that says whether anything follows.
//
//   floor + ceil of an f32 to its upper half = twice the upper half, plus one where not exact.
//
// Everything after the narrowing is done on sixteen bytes at once: 20 operations and the scaling's
// 4. NaN comes out as some code; no branch or address depends on data.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace octavo::cpu {
namespace {

struct Fp4Tables {
  // Cells, four to each pair of binades: up to 2^-3, then from 2^-3, 2^-1 and 2^1 on. Beyond them
  // tables give 0. Codes are counted down from 7, so that this is the largest.
  static constexpr std::uint8_t kDown[16] = {7, 7, 7, 7, 7, 7, 6, 6, 6, 5, 4, 3, 2, 1, 0, 0};
  // Mantissas below take the next code down: ties to even at 1/4, at 5/4 and 7/4 times 1, 2 and 4.
  static constexpr std::uint8_t kFrom[16] = {0, 0, 0,    0,    0,    0,    0x01, 0,
                                             0, 0, 0x41, 0xC0, 0x41, 0xC0, 0x41, 0};
  static constexpr std::uint8_t kBelow = 2 * 61;  // twice the upper seven bits of 2^-4's exponent
  static constexpr std::uint8_t kSign = 0x08;
  static constexpr std::uint8_t kFlip = 0x77;  // undoes the counting down of two packed codes

  uint8x16_t down = vld1q_u8(kDown), from = vld1q_u8(kFrom);
};

// Sixteen values, taken apart into bytes.
struct Fp4Bytes {
  uint8x16_t tops;      // the sign and the exponent's upper bits
  uint8x16_t lows;      // the exponent's last bit and the mantissa's first
  uint8x16_t mantissa;  // with its last bit set where anything follows
};

[[gnu::always_inline]] inline Fp4Bytes fp4_bytes(const float32x4_t values[4]) {
  const uint32x4_t almost = vdupq_n_u32(0xFFFF);
  uint8x16_t floor[2], ceil[2];
  for (int i = 0; i < 2; ++i) {
    const uint32x4_t a = vreinterpretq_u32_f32(values[2 * i]),
                     b = vreinterpretq_u32_f32(values[2 * i + 1]);
    floor[i] = vreinterpretq_u8_u16(vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
    ceil[i] = vreinterpretq_u8_u16(vaddhn_high_u32(vaddhn_u32(a, almost), b, almost));
  }
  const uint8x16_t lows = vuzp1q_u8(floor[0], floor[1]);
  return {vuzp2q_u8(floor[0], floor[1]), lows, vaddq_u8(lows, vuzp1q_u8(ceil[0], ceil[1]))};
}

// Codes counted down, with their signs; step by step for several groups, because the core's reorder
// window is too short to interleave them itself.
template <int kGroups>
[[gnu::always_inline]] inline void fp4_codes_down(const Fp4Tables& tables, const Fp4Bytes* bytes,
                                                  uint8x16_t* codes) {
  uint8x16_t cell[kGroups], lower[kGroups];
  for (int g = 0; g < kGroups; ++g) cell[g] = vaddq_u8(bytes[g].tops, bytes[g].tops);
  for (int g = 0; g < kGroups; ++g) cell[g] = vqsubq_u8(cell[g], vdupq_n_u8(Fp4Tables::kBelow));
  for (int g = 0; g < kGroups; ++g) cell[g] = vqaddq_u8(cell[g], cell[g]);
  for (int g = 0; g < kGroups; ++g) cell[g] = vsriq_n_u8(cell[g], bytes[g].lows, 6);
  for (int g = 0; g < kGroups; ++g) lower[g] = vqtbl1q_u8(tables.from, cell[g]);
  for (int g = 0; g < kGroups; ++g) lower[g] = vcgtq_u8(lower[g], bytes[g].mantissa);
  for (int g = 0; g < kGroups; ++g) codes[g] = vqtbl1q_u8(tables.down, cell[g]);
  for (int g = 0; g < kGroups; ++g) codes[g] = vsubq_u8(codes[g], lower[g]);
  for (int g = 0; g < kGroups; ++g)
    codes[g] = vbslq_u8(vdupq_n_u8(Fp4Tables::kSign), vshrq_n_u8(bytes[g].tops, 4), codes[g]);
}

// Two to a byte, the first one below.
[[gnu::always_inline]] inline uint8x16_t fp4_packed(uint8x16_t first, uint8x16_t second) {
  const uint8x16_t pairs = vsliq_n_u8(vuzp1q_u8(first, second), vuzp2q_u8(first, second), 4);
  return veorq_u8(pairs, vdupq_n_u8(Fp4Tables::kFlip));
}

}  // namespace
}  // namespace octavo::cpu
