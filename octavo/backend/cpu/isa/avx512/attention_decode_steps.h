// The softmax of decode attention (DecodeSteps), keys in lanes. For sixteen scores 2 operations
// find the largest, and 12 make weights and their squares.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/avx2/softmax_kernel.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"

namespace octavo::cpu {
namespace {

float decode_largest(const float* scores, std::int64_t n) {
  __m512 most = _mm512_loadu_ps(scores);
  __mmask16 nan = 0;
  for (std::int64_t i = 0; i < n; i += 16) {
    const __m512 score = _mm512_loadu_ps(scores + i);
    nan = static_cast<__mmask16>(nan | _mm512_cmp_ps_mask(score, score, _CMP_UNORD_Q));
    most = _mm512_max_ps(most, score);
  }
  return nan != 0 ? std::numeric_limits<float>::quiet_NaN() : _mm512_reduce_max_ps(most);
}

float decode_weights(float* scores, std::int64_t n, float from) {
  const __m512 origin = _mm512_set1_ps(from);
  __m512 squares = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < n; i += 16) {
    const __m512 weight =
        exp2_lanes<Avx512Lanes>(_mm512_sub_ps(_mm512_loadu_ps(scores + i), origin));
    _mm512_storeu_ps(scores + i, weight);
    squares = _mm512_fmadd_ps(weight, weight, squares);
  }
  return _mm512_reduce_add_ps(squares);
}

constexpr DecodeSteps kAvx512DecodeSteps{.largest = decode_largest, .weights = decode_weights};

}  // namespace
}  // namespace octavo::cpu
