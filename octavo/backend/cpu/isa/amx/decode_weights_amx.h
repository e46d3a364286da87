// split_weights: weights of decode attention as two terms of bf16, for AMX.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/power_unit.h"

namespace octavo::cpu {
namespace {

// To nearest even; NaN stays or becomes Inf.
[[gnu::always_inline]] inline __m512i rounded_to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_and_si512(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))),
                          _mm512_set1_epi32(-0x10000));
}

// What two terms leave out: the first at most 2^-8 of a weight just above a power of two, of which
// the second is off by half a step of its own, 2^-9 of that.
constexpr double kTwoTerms = 0x1p-17;

// Weights of n keys as two terms of bf16, over the power of two that is returned: the largest is
// near one, because tiles take subnormal numbers for zero.
float split_weights(const float* weights, std::int64_t n, std::byte* high, std::byte* low) {
  const auto load = [&](std::int64_t i) __attribute__((always_inline)) {
    const auto there = static_cast<__mmask16>(n - i >= 16 ? 0xFFFF : (1U << (n - i)) - 1);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(there, weights + i));
  };
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i most = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < n; i += 16)
    most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(load(i)), magnitude));
  const float unit =
      power_of_two_at_least(std::bit_cast<float>(_mm512_reduce_max_epu32(most)), -119);
  const __m512 inverse = _mm512_set1_ps(1.0F / unit);
  const auto store = [](__m512i bits, std::byte * to) __attribute__((always_inline)) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
  };
  for (std::int64_t i = 0; i < n; i += 16) {
    const __m512 weight = _mm512_mul_ps(load(i), inverse);
    const __m512i first = rounded_to_bf16(weight);
    store(first, high + 2 * i);
    store(rounded_to_bf16(_mm512_sub_ps(weight, _mm512_castsi512_ps(first))), low + 2 * i);
  }
  return unit;
}

}  // namespace
}  // namespace octavo::cpu
