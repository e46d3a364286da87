// The search for the e4m3 scale of an NVFP4 tile by integers (portable/fp4_search_bounds.h),
// sixteen values at a time, for each of nine codes. 12 operations for sixteen values and a code:
//   2 products, 2 that leave the table's index, 2 tables, 2 differences, 4 to square and add
#pragma once

#include <arm_neon.h>

#include <array>
#include <cstdint>

#include "octavo/backend/cpu/isa/neon/fp4_squares_steps.h"
#include "octavo/backend/cpu/isa/portable/fp4_search_bounds.h"

namespace octavo::cpu {
namespace {

struct NeonFp4Search : Fp4Search {
  static constexpr std::uint32_t kAllPlaces = (1u << kCodes) - 1;
  static constexpr std::uint32_t kPlaceBits[12] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 0, 0, 0};

  // Of a code with these last three bits: what u of the lowest code is multiplied by for the
  // eight codes above it, and the squares of scales.
  struct OfMantissa {
    std::int16_t quotient[8];
    float least[12], most[12], off[12];  // with what bounds add to a sum, and to it
  };
  std::array<OfMantissa, 8> of_mantissa{};

  constexpr NeonFp4Search() {
    for (int mantissa = 0; mantissa < 8; ++mantissa) {
      OfMantissa& of = of_mantissa[static_cast<std::size_t>(mantissa)];
      for (int i = 0; i < 8; ++i) of.quotient[i] = quotient(mantissa, i + 1);
      // Places beyond the nine never have the least error.
      for (int i = 0; i < 12; ++i) {
        const double of_own = i < kCodes ? ratio(mantissa, i) : 0.0,
                     square = i < kCodes ? of_own * of_own : 1e9;
        of.least[i] = static_cast<float>(square * (1.0 - kSlope));
        of.most[i] = static_cast<float>(square * (1.0 + kSlope));
        of.off[i] = static_cast<float>(square * kOffset);
      }
    }
  }
};
inline constexpr NeonFp4Search kFp4Search;

// The table, in registers: a compiler that knows what is in it loads it again for every use.
[[gnu::noipa]] inline uint8x16x2_t fp4_grid() {
  return {{vld1q_u8(Fp4Search::kGrid), vld1q_u8(Fp4Search::kGrid + 16)}};
}

// Sums of a tile by integers, for several codes: step by step, because the core's reorder window is
// too short to interleave them itself.
template <int kCount>
[[gnu::always_inline]] inline void fp4_rough_sums_of(int16x8_t (&u)[kCount][2], uint8x16x2_t grid,
                                                     int32x4_t* sums) {
  // Of the upper byte of u its upper six bits, which are five; of the lower byte nothing, because
  // what is beyond the table gives 0.
  const uint8x16_t beyond = vreinterpretq_u8_u16(vdupq_n_u16(0x00FF));
  uint8x16_t value[kCount][2];
  for (int i = 0; i < kCount; ++i)
    for (int half = 0; half < 2; ++half)
      value[i][half] = vsriq_n_u8(beyond, vreinterpretq_u8_s16(u[i][half]), 2);
  for (int i = 0; i < kCount; ++i)
    for (int half = 0; half < 2; ++half) value[i][half] = vqtbl2q_u8(grid, value[i][half]);
  for (int i = 0; i < kCount; ++i)
    for (int half = 0; half < 2; ++half)
      u[i][half] = vsubq_s16(u[i][half], vreinterpretq_s16_u8(value[i][half]));
  for (int i = 0; i < kCount; ++i)
    sums[i] = vmull_s16(vget_low_s16(u[i][0]), vget_low_s16(u[i][0]));
  for (int i = 0; i < kCount; ++i) sums[i] = vmlal_high_s16(sums[i], u[i][0], u[i][0]);
  for (int i = 0; i < kCount; ++i)
    sums[i] = vmlal_s16(sums[i], vget_low_s16(u[i][1]), vget_low_s16(u[i][1]));
  for (int i = 0; i < kCount; ++i) sums[i] = vmlal_high_s16(sums[i], u[i][1], u[i][1]);
}

// Of the lowest code, whose quotient is 1, and the two after it; or of three others.
template <int kFirst>
[[gnu::always_inline]] inline void fp4_rough_sums_from(const int16x8_t low[2], int16x8_t quotients,
                                                       uint8x16x2_t grid, int32x4_t* sums) {
  int16x8_t u[3][2];
  for (int half = 0; half < 2; ++half) {
    if constexpr (kFirst == 0) {
      u[0][half] = low[half];
    } else {
      u[0][half] = vqrdmulhq_laneq_s16(low[half], quotients, kFirst - 1);
    }
    u[1][half] = vqrdmulhq_laneq_s16(low[half], quotients, kFirst);
    u[2][half] = vqrdmulhq_laneq_s16(low[half], quotients, kFirst + 1);
  }
  fp4_rough_sums_of(u, grid, sums + kFirst);
}

// Those of all nine codes; there is room for twelve.
[[gnu::always_inline]] inline void fp4_rough_sums(const Fp4Floats magnitudes[4], float low_factor,
                                                  std::uint32_t own, uint8x16x2_t grid,
                                                  std::int32_t* out) {
  const auto& of = kFp4Search.of_mantissa[own & 7];
  int32x4_t wide[4], sums[9];
  for (int i = 0; i < 4; ++i)
    wide[i] = vcvtnq_s32_f32(vmulq_n_f32(magnitudes[i], low_factor * Fp4Search::kUnit));
  const auto narrow = [](int32x4_t a, int32x4_t b) {
    return vuzp1q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
  };
  const int16x8_t low[2] = {narrow(wide[0], wide[1]), narrow(wide[2], wide[3])};
  const int16x8_t quotients = vld1q_s16(of.quotient);
  fp4_rough_sums_from<0>(low, quotients, grid, sums);
  fp4_rough_sums_from<3>(low, quotients, grid, sums);
  fp4_rough_sums_from<6>(low, quotients, grid, sums);
  for (int i = 0; i < 8; i += 4)
    vst1q_s32(out + i,
              vpaddq_s32(vpaddq_s32(sums[i], sums[i + 1]), vpaddq_s32(sums[i + 2], sums[i + 3])));
  const int32x4_t last = vpaddq_s32(sums[8], sums[8]);
  vst1q_s32(out + 8, vpaddq_s32(last, last));
}

// The places, as bits, of all codes that may have the least error.
[[gnu::always_inline]] inline std::uint32_t fp4_likely_codes(const std::int32_t* rough,
                                                             std::uint32_t own) {
  const auto& of = kFp4Search.of_mantissa[own & 7];
  float32x4_t least[3], most[3];
  for (int i = 0; i < 3; ++i) {
    const float32x4_t sum = vcvtq_f32_s32(vld1q_s32(rough + 4 * i)),
                      off = vld1q_f32(of.off + 4 * i);
    least[i] = vfmaq_f32(vnegq_f32(off), sum, vld1q_f32(of.least + 4 * i));
    most[i] = vfmaq_f32(off, sum, vld1q_f32(of.most + 4 * i));
  }
  const float32x4_t smallest = vminnmq_f32(vminnmq_f32(most[0], most[1]), most[2]);
  const float32x4_t bound = vdupq_n_f32(vminnmvq_f32(smallest));
  uint32x4_t likely = vdupq_n_u32(0);
  for (int i = 0; i < 3; ++i)
    likely = vorrq_u32(likely, vandq_u32(vcleq_f32(least[i], bound),
                                         vld1q_u32(NeonFp4Search::kPlaceBits + 4 * i)));
  return vaddvq_u32(likely);
}

// By sums in f32.
inline std::uint32_t fp4_least_error(const Fp4Floats magnitudes[4], const TileScale* of_code,
                                     std::uint32_t own) {
  return fp4_least_error_by(
      [&](const float* factors, int count, float* sums) {
        fp4_squares_of<NeonFp4Steps, 4>(magnitudes, 4, factors, count, sums);
      },
      of_code, own);
}

}  // namespace
}  // namespace octavo::cpu
