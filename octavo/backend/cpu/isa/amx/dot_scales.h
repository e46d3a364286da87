// The scales of GEMV by codes, for vectors of two elements of K in each of sixteen lanes.
#pragma once

#include <immintrin.h>

#include <bit>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/avx512/bf16_pairs.h"

namespace octavo::cpu {
namespace {

// Adds products of 32 elements, two in each lane, times the scales of their runs: two runs of
// sixteen, or one of 32 and more. Runs are powers of two, unless there is one only. The scale of B
// is applied first, as everywhere; one of A that does not change along K to the sums at the end.
template <bool kSixteens, bool kChanges>
class DotScales {
 public:
  explicit DotScales(const DotJob& job)
      : job_(job),
        shift_(job.runs == 1 ? 63 : std::countr_zero(static_cast<std::uint64_t>(job.run))) {}

  [[gnu::always_inline]] __m512 add(__m512 sum, __m512 part, std::int64_t k, int column) const {
    if (job_.b_scale == nullptr) return _mm512_add_ps(sum, part);
    const __m512 right = lanes(job_.b_scale_rows[column], k);
    if constexpr (!kChanges) return _mm512_fmadd_ps(part, right, sum);
    return _mm512_fmadd_ps(_mm512_mul_ps(part, right), lanes(job_.a_scale[0], k), sum);
  }

 private:
  [[gnu::always_inline]] __m512 lanes(const float* scales, std::int64_t k) const {
    const std::int64_t run = k >> shift_;
    const __m512 first = _mm512_set1_ps(scales[run]);
    // Where K ends with half of 32 elements, there is no second.
    if (!kSixteens || run + 1 == job_.runs) return first;
    return _mm512_mask_blend_ps(0xFF00, first, _mm512_set1_ps(scales[run + 1]));
  }

  const DotJob& job_;
  int shift_;
};

// The scale of A for the sums at the end.
[[gnu::always_inline]] inline float last_scale(const DotJob& job) {
  return job.b_scale == nullptr || job.a_scale_changes ? 1.0F : job.a_scale[0][0];
}

}  // namespace
}  // namespace octavo::cpu
