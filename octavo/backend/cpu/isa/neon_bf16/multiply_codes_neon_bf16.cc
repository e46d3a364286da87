// One row by packed weights, decoded in registers: BFMMLA's tile would multiply eight rows. Sixteen
// codes are four columns by four elements of K; BFDOT adds products of two columns to a vector, and
// scales are applied to the sums of a run, of four columns at once.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/backend/cpu/isa/neon_bf16/packed_codes.h"

namespace octavo::cpu {
namespace {

template <typename In, typename PlanesOf>
[[gnu::always_inline]] inline void multiply(const PackJob& codes, const MicrokernelJob& job,
                                            const PlanesOf& planes_of) {
  const bool of_tiles = codes.scales != nullptr;
  const std::int64_t length = of_tiles ? codes.run : job.run, runs = codes.n / length;
  const std::uint8_t* from = codes.words;
  const auto* a = reinterpret_cast<const std::uint64_t*>(job.a);  // four elements of each row
  float32x4_t total[kVectors] = {};
  for (std::int64_t r = 0; r < runs; ++r) {
    float32x4_t sum[kVectors][2] = {};
    for (std::int64_t k = 0; k < length; k += kBf16Step, a += kPairRows) {
      const bfloat16x8_t row = vreinterpretq_bf16_u64(vld1q_dup_u64(a));
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v, from += In::kBytes) {
        __builtin_prefetch(from + kAhead);
        const Planes planes = planes_of(In::load(from));
        sum[v][0] =
            vbfdotq_f32(sum[v][0], row, vreinterpretq_bf16_u8(vzip1q_u8(planes.low, planes.high)));
        sum[v][1] =
            vbfdotq_f32(sum[v][1], row, vreinterpretq_bf16_u8(vzip2q_u8(planes.low, planes.high)));
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      float32x4_t part = vpaddq_f32(sum[v][0], sum[v][1]);
      if (of_tiles) {
        float scales[4];
        for (int col = 0; col < 4; ++col) scales[col] = codes.scales[(4 * v + col) * runs + r];
        part = vmulq_f32(part, vld1q_f32(scales));
      } else if (job.a_scale != nullptr) {
        part = vmulq_f32(part, vld1q_f32(job.b_scale + r * kPairCols + 4 * v));
        part = vmulq_n_f32(part, job.a_scale[r * kPairRows]);
      }
      total[v] = vaddq_f32(total[v], part);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    // Scales that do not change along K.
    if (of_tiles && job.a_scale != nullptr) {
      total[v] = vmulq_f32(total[v], vld1q_f32(job.b_scale + 4 * v));
      total[v] = vmulq_n_f32(total[v], job.a_scale[0]);
    }
    float* to = job.sums + 4 * v;
    vst1q_f32(to, job.overwrites ? total[v] : vaddq_f32(vld1q_f32(to), total[v]));
  }
}

template <const Format& kFormat, typename PlanesOf, typename In>
struct Multiply {
  static void run(const PackJob& codes, const MicrokernelJob& job) {
    constexpr Format kCopy = kFormat;  // a reference to the constant itself would be a symbol
    const PlanesOf planes_of(kCopy);
    multiply<In>(codes, job, planes_of);
  }
};

}  // namespace

MultiplyCodes neon_bf16_multiply_codes(const PackedCodes& codes) {
  return codes.in_panels ? with_packed_codes<MultiplyCodes, Multiply>(codes) : nullptr;
}

}  // namespace octavo::cpu
