// The running maximum of the online softmax (update_running_max of attention_softmax.h), four
// columns at a time.
#pragma once

#include <arm_neon.h>

#include <limits>

#include "octavo/backend/cpu/attention/attention.h"

namespace octavo::cpu {
namespace {

// Updates the running maximum `top` and its integer `base` by the largest scores of all columns;
// `origin` becomes what is subtracted from scores, 0 where a column has seen no key yet. Returns
// whether a factor is not 1.
template <int kQuads>
[[gnu::always_inline]] inline bool raise_top_quads(const SoftmaxJob& job,
                                                   const float32x4_t (&largest)[kQuads],
                                                   float32x4_t (&origin)[kQuads]) {
  const float32x4_t nothing = vdupq_n_f32(-std::numeric_limits<float>::infinity());
  uint32x4_t same = vdupq_n_u32(~0u);
  for (int q = 0; q < kQuads; ++q) {
    const float32x4_t before = vld1q_f32(job.base + 4 * q);
    // The first maximum propagates NaN, the second one ignores it.
    const float32x4_t top = vmaxq_f32(vld1q_f32(job.top + 4 * q), largest[q]);
    const float32x4_t base = vmaxnmq_f32(before, vrndpq_f32(top));
    vst1q_f32(job.top + 4 * q, top);
    vst1q_f32(job.base + 4 * q, base);
    const uint32x4_t stays = vorrq_u32(vceqq_f32(before, base), vceqq_f32(before, nothing));
    // An integer, and 0 for what is below -126.
    const int32x4_t fall = vmaxq_s32(vcvtq_s32_f32(vsubq_f32(before, base)), vdupq_n_s32(-127));
    const float32x4_t power =
        vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(fall, vdupq_n_s32(127)), 23));
    vst1q_f32(job.rescale + 4 * q, vbslq_f32(stays, vdupq_n_f32(1.0F), power));
    same = vandq_u32(same, stays);
    origin[q] = vbslq_f32(vcgtq_f32(base, nothing), base, vdupq_n_f32(0.0F));
  }
  return vminvq_u32(same) == 0;
}

}  // namespace
}  // namespace octavo::cpu
