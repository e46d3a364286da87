// The soft cap of scores, cap * tanh(score / cap), which models apply before the mask:
//   apply_soft_cap(SoftCap(job.soft_cap), scores, n);
// tanh(z) is z times a quotient of two polynomials of z^2, each of degree 4, whose largest relative
// error up to 9, where tanh is 1 in f32, is the least: 2^-25.5. With all roundings a capped score
// is within kSoftCapError (attention_job.h) of itself, however small it is, unless it is subnormal
// over the cap; and it may be above the cap by as much. Coefficients are all positive: no sum of
// them cancels.
#pragma once

#include <cstdint>
#include <numbers>

#include "octavo/backend/cpu/attention/attention_softmax.h"

namespace octavo::cpu {

inline constexpr float kMostTanh = 9.0F;
inline constexpr float kTanhOver[] = {0x1p+0F, 0x1.120b02p-3F, 0x1.ca2b6ap-9F, 0x1.59bfbep-16F,
                                      0x1.cacdfp-27F};
inline constexpr float kTanhUnder[] = {0x1p+0F, 0x1.de5accp-2F, 0x1.a7f784p-6F, 0x1.588454p-12F,
                                       0x1.a1783p-21F};

// In units of the scores: log2.
struct SoftCap {
  explicit SoftCap(double natural)
      : cap(static_cast<float>(natural * std::numbers::log2e)),
        inverse(static_cast<float>(1.0 / (natural * std::numbers::log2e))) {}
  float cap, inverse;
};

namespace {

// NaN stays, and a score of +-inf becomes NaN: it may be a sum that overflowed, of any true size.
// No branch, which would prevent vectorisation.
inline float soft_capped(const SoftCap& by, float score) {
  float z = score * by.inverse;
  z = z > kMostTanh ? kMostTanh : z;
  z = z < -kMostTanh ? -kMostTanh : z;
  const float t = z * z;
  float over = kTanhOver[4] * t + kTanhOver[3], under = kTanhUnder[4] * t + kTanhUnder[3];
  over = over * t + kTanhOver[2];
  under = under * t + kTanhUnder[2];
  over = over * t + kTanhOver[1];
  under = under * t + kTanhUnder[1];
  over = over * t + kTanhOver[0];
  under = under * t + kTanhUnder[0];
  return over / under * z * by.cap + (score - score);
}

inline void apply_soft_cap(const SoftCap& by, float* scores, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) scores[i] = soft_capped(by, scores[i]);
}

// The derivative, 1 - tanh^2, without the cancellation of that: with e = exp(-2 |z|), 4 e / (1 +
// e)^2. `score` is one before the cap.
inline float slope_of_soft_cap(const SoftCap& by, float score) {
  constexpr auto kTwice = static_cast<float>(2.0 * std::numbers::log2e);
  const float z = score * by.inverse, e = exp2_of((z > 0.0F ? -z : z) * kTwice);
  return 4.0F * e / ((1.0F + e) * (1.0F + e));
}

}  // namespace
}  // namespace octavo::cpu
