// Sums of squares of weights in f16, 24 columns in vector lanes: they give n_eff, the number of
// keys that a row attends to.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/neon_fp16/half_tile.h"

namespace octavo::cpu {
namespace {

// Weights are at most 146, so that the squares of three of the largest reach the end of f16: a run
// that has more overflows to infinity, and stays there.
template <bool kAsked>
class HalfSquares {
 public:
  [[gnu::always_inline]] HalfSquares() {
    for (int q = 0; q < 2 * kHalfVectors; ++q) all_[q] = vdupq_n_f32(0.0F);
  }
  [[gnu::always_inline]] void begin_run() {
    for (int e = 0; e < kHalfVectors; ++e) run_[e] = vdupq_n_f16(0);
  }
  [[gnu::always_inline]] void add(int e, float16x8_t weight) {
    if constexpr (kAsked) run_[e] = vfmaq_f16(run_[e], weight, weight);
  }
  [[gnu::always_inline]] void end_run() {
    if constexpr (!kAsked) return;
    for (int e = 0; e < kHalfVectors; ++e) {
      all_[2 * e] = vaddq_f32(all_[2 * e], vcvt_f32_f16(vget_low_f16(run_[e])));
      all_[2 * e + 1] = vaddq_f32(all_[2 * e + 1], vcvt_high_f32_f16(run_[e]));
    }
  }
  [[gnu::always_inline]] void add_to(const SoftmaxJob& job) const {
    if constexpr (!kAsked) return;
    for (int q = 0; q < 2 * kHalfVectors; ++q) {
      const float32x4_t rescale = vld1q_f32(job.rescale + 4 * q),
                        before = vmulq_f32(vld1q_f32(job.weight_squares + 4 * q), rescale);
      vst1q_f32(job.weight_squares + 4 * q, vaddq_f32(vmulq_f32(before, rescale), all_[q]));
    }
  }

 private:
  float16x8_t run_[kHalfVectors];
  float32x4_t all_[2 * kHalfVectors];
};

}  // namespace
}  // namespace octavo::cpu
