// One row by packed weights, decoded in registers: BFMMLA's tile would multiply eight rows. Sixteen
// codes are four columns by four elements of K; BFDOT adds products of two columns to a vector, and
// scales are applied to the sums of a run, of four columns at once.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/backend/cpu/isa/neon_bf16/normal_words.h"
#include "octavo/backend/cpu/isa/neon_bf16/packed_codes.h"
#include "octavo/backend/cpu/isa/neon_bf16/run_scales.h"

namespace octavo::cpu {
namespace {

using Sums = float32x4_t[kVectors][2];

// `n` elements of K; `a` has four elements of each of eight rows.
template <typename In, typename PlanesOf>
[[gnu::always_inline]] inline void add_codes(const std::uint64_t* a, const std::uint8_t* from,
                                             std::int64_t n, const PlanesOf& planes_of, Sums& sum) {
  for (std::int64_t k = 0; k < n; k += In::kSteps * kBf16Step) {
    bfloat16x8_t row[In::kSteps];
#pragma GCC unroll 2
    for (int step = 0; step < In::kSteps; ++step, a += kPairRows)
      row[step] = vreinterpretq_bf16_u64(vld1q_dup_u64(a));
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v, from += 16) {
      __builtin_prefetch(from + kAhead);
      uint8x16_t found[In::kSteps];
      In::load(from, found);
#pragma GCC unroll 2
      for (int step = 0; step < In::kSteps; ++step) {
        const Planes planes = planes_of(found[step]);
        sum[v][0] = vbfdotq_f32(sum[v][0], row[step],
                                vreinterpretq_bf16_u8(vzip1q_u8(planes.low, planes.high)));
        sum[v][1] = vbfdotq_f32(sum[v][1], row[step],
                                vreinterpretq_bf16_u8(vzip2q_u8(planes.low, planes.high)));
      }
    }
  }
}

// The same for codes that are all normal numbers; false, and sums as they were, where they are not.
template <const Format& kFormat>
[[gnu::always_inline]] inline bool add_normal(const std::uint64_t* a, const std::uint8_t* from,
                                              std::int64_t n, Sums& sum) {
  using Words = NormalWords<kFormat>;
  const uint16x8_t base = vdupq_n_u16(Words::kBase);
  Words words;
  Sums next;
  for (int v = 0; v < kVectors; ++v)
    for (int i = 0; i < 2; ++i) next[v][i] = sum[v][i];
  for (std::int64_t k = 0; k < n; k += kBf16Step, a += kPairRows) {
    const bfloat16x8_t row = vreinterpretq_bf16_u64(vld1q_dup_u64(a));
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v, from += 16) {
      __builtin_prefetch(from + kAhead);
      const uint8x16_t codes = vld1q_u8(from);
      words.see(codes);
      next[v][0] = vbfdotq_f32(next[v][0], row, vreinterpretq_bf16_u16(Words::low(codes, base)));
      next[v][1] = vbfdotq_f32(next[v][1], row, vreinterpretq_bf16_u16(Words::high(codes, base)));
    }
  }
  if (!words.all_normal()) return false;
  for (int v = 0; v < kVectors; ++v)
    for (int i = 0; i < 2; ++i) sum[v][i] = next[v][i];
  return true;
}

template <const Format& kFormat, typename In, typename PlanesOf>
[[gnu::always_inline]] inline void multiply(const PackJob& codes, const MicrokernelJob& job,
                                            const PlanesOf& planes_of) {
  const bool of_tiles = codes.is_scaled();
  const RunScales tile_scales(codes);
  const std::int64_t length = of_tiles ? codes.run : job.run, runs = codes.n / length;
  const std::uint8_t* from = codes.words;
  const auto* a = reinterpret_cast<const std::uint64_t*>(job.a);  // four elements of each row
  float32x4_t total[kVectors] = {};
  for (std::int64_t r = 0; r < runs; ++r) {
    Sums sum = {};
    for (std::int64_t k = 0; k < length;) {
      constexpr bool kNormal = NormalWords<kFormat>::kFits;
      const std::int64_t piece = 2 * kNormalPiece,
                         some = !kNormal || length - k < piece ? length - k : piece;
      bool done = false;
      if constexpr (kNormal) done = add_normal<kFormat>(a, from, some, sum);
      if (!done) add_codes<In>(a, from, some, planes_of, sum);
      a += some / kBf16Step * kPairRows;
      from += some * kPairCols / In::kPerByte;
      k += some;
    }
    for (int v = 0; v < kVectors; ++v) {
      float32x4_t part = vpaddq_f32(sum[v][0], sum[v][1]);
      if (of_tiles) {
        float scales[4];
        for (int col = 0; col < 4; ++col) scales[col] = tile_scales.value(4 * v + col, r);
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
    const auto planes_of = PlanesOf::template of<kFormat>();
    multiply<kFormat, In>(codes, job, planes_of);
  }
};

}  // namespace

MultiplyCodes neon_bf16_multiply_codes(const PackedCodes& codes) {
  return codes.in_panels ? with_packed_codes<MultiplyCodes, Multiply>(codes) : nullptr;
}

}  // namespace octavo::cpu
