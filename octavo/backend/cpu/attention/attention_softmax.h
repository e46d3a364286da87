// The online softmax of a query block in f32, by loops that compilers vectorise, one vector lane
// per column.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/masks.h"

namespace octavo::cpu {
namespace {

// 2^x for x <= 0, or any number for NaN; 0 below -126. The polynomial is the one of degree 5 whose
// largest relative error for |f| <= 1/2 is the least, 7.5e-8; with its roundings 2^-22.
inline float exp2_of(float x) {
  constexpr float kRounder = 0x1.8p+23F, kLeast = -126.0F;
  // No branch, which would prevent vectorisation.
  const std::uint32_t above = mask_of(x > kLeast);
  const float clamped = std::bit_cast<float>(
      select(above, std::bit_cast<std::uint32_t>(x), std::bit_cast<std::uint32_t>(kLeast)));
  const float shifted = clamped + kRounder;
  const float f = clamped - (shifted - kRounder);
  float p = 0x1.5c08e5p-10F;
  p = p * f + 0x1.3d0c53p-7F;
  p = p * f + 0x1.c6b6e5p-5F;
  p = p * f + 0x1.ebf917p-3F;
  p = p * f + 0x1.62e429p-1F;
  p = p * f + 0x1.000001p+0F;
  // The integer is in the low bits of `shifted`; its upper bits fall off.
  const std::uint32_t bits =
      std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23);
  return std::bit_cast<float>(bits & above);
}

// The larger one, and a where they cannot be compared; a NaN sets `nan_seen`.
inline float larger_of(float a, float b, std::uint32_t& nan_seen) {
  nan_seen |= mask_of(b != b);
  return std::bit_cast<float>(
      select(mask_of(b > a), std::bit_cast<std::uint32_t>(b), std::bit_cast<std::uint32_t>(a)));
}

// Updates the running maximum `top` and its integer `base` by the largest scores of all columns.
// Returns whether a factor is not 1.
template <int kQueries>
inline bool update_running_max(const SoftmaxJob& job, const float* largest) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool any = false;
  for (int c = 0; c < kQueries; ++c) {
    // NaN stays: no comparison with it is true.
    const float before = job.base[c];
    if (!(largest[c] <= job.top[c]) && job.top[c] == job.top[c]) job.top[c] = largest[c];
    job.base[c] = std::max(before, std::ceil(job.top[c]));
    job.rescale[c] =
        before == job.base[c] || before == -kInfinity ? 1.0F : exp2_of(before - job.base[c]);
    any |= job.rescale[c] != 1.0F;
  }
  return any;
}

// What is subtracted from scores: 0 where a column has seen no key yet.
inline float origin(float base) {
  return base > -std::numeric_limits<float>::infinity() ? base : 0.0F;
}

// Of the weights as they were stored.
template <int kQueries>
inline void add_weight_squares(const SoftmaxJob& job) {
  float squares[kQueries] = {};
  const auto* weight = reinterpret_cast<const float*>(job.weights);
  for (std::int64_t key = 0; key < job.keys; ++key, weight += kQueries)
    for (int c = 0; c < kQueries; ++c) squares[c] += weight[c] * weight[c];
  for (int c = 0; c < kQueries; ++c)
    job.weight_squares[c] = job.weight_squares[c] * (job.rescale[c] * job.rescale[c]) + squares[c];
}

template <int kQueries>
bool softmax_f32(const SoftmaxJob& job) {
  float largest[kQueries], from[kQueries], sum[kQueries] = {};
  std::uint32_t nan_seen[kQueries] = {};
  std::copy_n(job.scores, kQueries, largest);
  const float* score = job.scores;
  for (std::int64_t key = 0; key < job.keys; ++key, score += kQueries)
    for (int c = 0; c < kQueries; ++c) largest[c] = larger_of(largest[c], score[c], nan_seen[c]);
  for (int c = 0; c < kQueries; ++c)
    if (nan_seen[c] != 0) largest[c] = std::numeric_limits<float>::quiet_NaN();
  const bool any = update_running_max<kQueries>(job, largest);
  for (int c = 0; c < kQueries; ++c) from[c] = origin(job.base[c]);
  score = job.scores;
  auto* weight = reinterpret_cast<float*>(job.weights);
  for (std::int64_t key = 0; key < job.keys; ++key, score += kQueries, weight += kQueries)
    for (int c = 0; c < kQueries; ++c) {
      const float p = exp2_of(score[c] - from[c]);
      weight[c] = p;
      sum[c] += p;
    }
  for (int c = 0; c < kQueries; ++c) job.sum[c] = job.sum[c] * job.rescale[c] + sum[c];
  if (job.weight_squares != nullptr) add_weight_squares<kQueries>(job);
  return any;
}

}  // namespace
}  // namespace octavo::cpu
