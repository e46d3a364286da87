// Scores with a bias, in units of log2. Many callers mask a key by a bias near the lowest f32
// (-3.4e38, finfo.min), and log2(e) times that overflows f32: it must not become -inf, because the
// output of a row whose keys are all masked so is the mean of V, not zero. Beyond 2^126 scores are
// compressed: they keep their order, and at that size two different ones differ by far more than a
// weight can show.
#pragma once

#include <cmath>
#include <numbers>

#include "octavo/backend/attention_job.h"

namespace octavo::cpu {

inline constexpr double kBend = 0x1p+126, kSlope = 16.0;

// `factor` is log2(e) times the bias's own, which is at most 2.
inline double bias_factor(const AttentionBias& bias) {
  return static_cast<double>(bias.factor) * std::numbers::log2e;
}

// -inf masks a key, whatever its score.
inline float with_bias(float score, float bias, double factor) {
  constexpr float kBendF32 = static_cast<float>(kBend);
  if (bias == -HUGE_VALF) return bias;
  const float sum = score + bias * static_cast<float>(factor);
  if (std::abs(sum) <= kBendF32) return sum;
  const double wide = static_cast<double>(score) + static_cast<double>(bias) * factor,
               size = std::abs(wide);
  if (!(size > kBend)) return static_cast<float>(wide);  // NaN too
  return static_cast<float>(std::copysign(kBend + (size - kBend) / kSlope, wide));
}

// Inverse of the compression, for the largest score.
inline double unbent(double score) {
  const double size = std::abs(score);
  return size > kBend ? std::copysign(kBend + (size - kBend) * kSlope, score) : score;
}

}  // namespace octavo::cpu
