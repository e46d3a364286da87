// Packed weights to panels of bf16 for BFMMLA, [k / 4][12 columns][4]: codes are in that order, so
// that sixteen of them, four columns, are decoded by byte planes and stored. The scales of MX
// blocks and NVFP4 tiles are multiplied in, which is exact (gemm_scale_range.h): in f32, whose
// upper halves are the result, 12 operations more for sixteen codes.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/backend/cpu/isa/neon_bf16/packed_codes.h"

namespace octavo::cpu {
namespace {

// Eight bf16 of two columns, times their scales.
[[gnu::always_inline]] inline uint16x8_t times(uint16x8_t values, float32x4_t first,
                                               float32x4_t second) {
  const uint16x8_t zero = vdupq_n_u16(0);
  const float32x4_t low = vreinterpretq_f32_u16(vzip1q_u16(zero, values)),
                    high = vreinterpretq_f32_u16(vzip2q_u16(zero, values));
  return vuzp2q_u16(vreinterpretq_u16_f32(vmulq_f32(low, first)),
                    vreinterpretq_u16_f32(vmulq_f32(high, second)));
}

template <typename In, bool kScaled, typename PlanesOf>
[[gnu::always_inline]] inline void unpack(const PackJob& job, const PlanesOf& planes_of) {
  const std::uint8_t* from = job.words;
  auto* to = reinterpret_cast<std::uint16_t*>(job.panel);
  const std::int64_t run = kScaled ? job.run : job.n, runs = job.n / run;
  for (std::int64_t r = 0; r < runs; ++r) {
    float32x4_t scale[kPairCols];
    if constexpr (kScaled)
      for (int col = 0; col < kPairCols; ++col)
        scale[col] = vdupq_n_f32(job.scales[col * runs + r]);
    for (std::int64_t k = 0; k < run; k += kBf16Step) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        __builtin_prefetch(from + kAhead);
        const Planes planes = planes_of(In::load(from));
        uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(planes.low, planes.high)),
                   high = vreinterpretq_u16_u8(vzip2q_u8(planes.low, planes.high));
        if constexpr (kScaled) {
          low = times(low, scale[4 * v], scale[4 * v + 1]);
          high = times(high, scale[4 * v + 2], scale[4 * v + 3]);
        }
        vst1q_u16(to, low);
        vst1q_u16(to + 8, high);
        from += In::kBytes;
        to += kCodes;
      }
    }
  }
}

template <const Format& kFormat, typename PlanesOf, typename In>
struct Unpack {
  static void run(const Format&, const PackJob& job) {
    constexpr Format kCopy = kFormat;  // a reference to the constant itself would be a symbol
    const PlanesOf planes_of(kCopy);
    job.scales != nullptr ? unpack<In, true>(job, planes_of) : unpack<In, false>(job, planes_of);
  }
};

}  // namespace

PackCodes neon_bf16_unpack_codes(const PackedCodes& codes) {
  return codes.in_panels ? with_packed_codes<PackCodes, Unpack>(codes) : nullptr;
}

}  // namespace octavo::cpu
