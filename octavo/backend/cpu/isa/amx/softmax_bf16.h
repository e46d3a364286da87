// The online softmax of a query block of 32 columns with weights in bf16, in pairs of keys: the B
// panel of TDPBF16PS. Two vectors of columns by two keys a step, four independent chains.
//
// For a vector of scores: one maximum, nine operations for 2^x, and four for rounding, packing and
// the sum of what was packed: 14; two more with factors of keys.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/avx2/softmax_kernel.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"

namespace octavo::cpu {
namespace {

constexpr int kColumns = 2 * Avx512Lanes::kLanes;

// 2^f for |f| <= 1/2 of degree 3, the one of least relative error, 7.5e-5, over its first
// coefficient: weights of a row may have any factor in common. So an integer has a weight of
// exactly 1 times a power of two, and no weight above 2^-126 is subnormal.
constexpr double kThird = 0x1.c3f75fba75509p-5, kRoot = 0x1.2b4eb284d9d3fp+1,
                 kMiddle = 0x1.078ed91873ebap+1, kLast = 0x1.f00cb3cb101fep+2;
// (f + root) (f^2 + middle f + last) third.
constexpr double kConstant = kRoot * kLast;
constexpr float kWeightOfOne = static_cast<float>(1.0 / (kThird * kConstant));
constexpr float kC3 = static_cast<float>(1.0 / kConstant),
                kC2 = static_cast<float>((kMiddle + kRoot) / kConstant),
                kC1 = static_cast<float>((kLast + kRoot * kMiddle) / kConstant);

// The origin of a column's exponents is an integer: one addition takes it off and rounds.
struct Origins {
  __m512 least;    // scores up to this have no weight
  __m512 rounder;  // 1.5 2^23 less the origin
};

// 2^x as bits, half a step of bf16 above it: its upper half is the weight, rounded to nearest.
// Scores up to `least`, those of masked keys above all, have the weight 0; NaN stays.
[[gnu::always_inline]] inline __m512 weight_of(__m512 score, const Origins& from) {
  const __mmask16 there = _mm512_cmp_ps_mask(score, from.least, _CMP_NLE_UQ);
  const __m512 shifted = _mm512_add_ps(score, from.rounder);
  const __m512 f = _mm512_sub_ps(score, _mm512_sub_ps(shifted, from.rounder));
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(kC3), f, _mm512_set1_ps(kC2));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kC1));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(
      there, _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

// Two keys of sixteen columns, rounded: the words of a pair, and both as f32.
struct Bf16Pair {
  __m512i words;
  __m512 first, second;
  [[gnu::always_inline]] Bf16Pair(__m512 a, __m512 b) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(-0x10000);
    const __m512i low = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(a), half), upper),
                  high = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(b), half), upper);
    words = _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
    first = _mm512_castsi512_ps(low);
    second = _mm512_castsi512_ps(high);
  }
};

template <bool kFactors>
[[gnu::always_inline]] inline void weights_of(const SoftmaxJob& job, const Origins (&from)[2],
                                              __m512 (&sum)[2]) {
  __m512 part[2][2];
  for (int h = 0; h < 2; ++h) part[h][0] = part[h][1] = _mm512_setzero_ps();
  const float* score = job.scores;
  std::byte* weight = job.weights;
  // Copies: the compiler would load them again after each store of weights.
  const std::int64_t keys = job.keys;
  const float *const factors = job.key_factors, *const inverses = job.key_inverses;
  for (std::int64_t key = 0; key < keys; key += 2) {
    __m512 p[2][2];
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        p[h][k] = weight_of(_mm512_loadu_ps(score + k * kColumns + h * 16), from[h]);
        if constexpr (kFactors) p[h][k] = _mm512_mul_ps(p[h][k], _mm512_set1_ps(factors[key + k]));
      }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Bf16Pair pair(p[h][0], p[h][1]);
      _mm512_storeu_si512(weight + h * 64, pair.words);
      if constexpr (kFactors) {
        part[h][0] = _mm512_fmadd_ps(pair.first, _mm512_set1_ps(inverses[key]), part[h][0]);
        part[h][1] = _mm512_fmadd_ps(pair.second, _mm512_set1_ps(inverses[key + 1]), part[h][1]);
      } else {
        part[h][0] = _mm512_add_ps(part[h][0], pair.first);
        part[h][1] = _mm512_add_ps(part[h][1], pair.second);
      }
    }
    score += 2 * kColumns;
    weight += 2 * kColumns * 2;
  }
  for (int h = 0; h < 2; ++h) sum[h] = _mm512_add_ps(part[h][0], part[h][1]);
}

bool softmax_bf16(const SoftmaxJob& job) {
  using L = Avx512Lanes;
  constexpr float kRounder = 0x1.8p+23F, kMax = 0x1p+21F, kReach = 126.0F;
  __m512 largest[2], origin[2], sum[2];
  largest_scores<L, 2>(job, largest);
  const bool any = raise_top<L, 2>(job, largest, origin);
  Origins from[2];
  bool far = false;
  for (int h = 0; h < 2; ++h) {
    from[h].least = _mm512_sub_ps(origin[h], _mm512_set1_ps(kReach));
    from[h].rounder = _mm512_sub_ps(_mm512_set1_ps(kRounder), origin[h]);
    const __m512 size = _mm512_max_ps(origin[h], _mm512_sub_ps(_mm512_setzero_ps(), origin[h]));
    far |= _mm512_cmp_ps_mask(size, _mm512_set1_ps(kMax), _CMP_NLE_UQ) != 0;
  }
  if (far) {
    // The rounder less such an origin cannot hold integers: the origin is subtracted from scores
    // first. They have no fraction bits left, so this is rare.
    for (std::int64_t key = 0; key < job.keys; ++key)
      for (int h = 0; h < 2; ++h) {
        float* const score = job.scores + key * kColumns + h * 16;
        _mm512_storeu_ps(score, _mm512_sub_ps(_mm512_loadu_ps(score), origin[h]));
      }
    for (int h = 0; h < 2; ++h) {
      from[h].least = _mm512_set1_ps(-kReach);
      from[h].rounder = _mm512_set1_ps(kRounder);
    }
  }
  if (job.key_factors != nullptr) {
    weights_of<true>(job, from, sum);
  } else {
    weights_of<false>(job, from, sum);
  }
  mark_nan<L, 2>(job, sum);
  for (int h = 0; h < 2; ++h) {
    float* const to = job.sum + h * 16;
    _mm512_storeu_ps(
        to, _mm512_fmadd_ps(_mm512_loadu_ps(to), _mm512_loadu_ps(job.rescale + h * 16), sum[h]));
  }
  return any;
}

}  // namespace
}  // namespace octavo::cpu
