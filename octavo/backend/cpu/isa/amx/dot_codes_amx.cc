// GEMV: one row of bf16 by four rows of codes, decoded in registers by byte planes
// (avx512_vbmi/planes.h). Pairs of bf16 in a word are taken apart by a shift and a mask, on both
// sides alike: the order of elements in a sum does not matter.
#include <immintrin.h>

#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/planes.h"

namespace octavo::cpu {
namespace {

// The first and the second of two bf16 in each word, as f32.
[[gnu::always_inline]] inline __m512 even_of(__m512i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
[[gnu::always_inline]] inline __m512 odd_of(__m512i words) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

template <const Format& kFormat>
void dot_codes(const DotJob& job) {
  const Planes<Bfloat, kFormat> planes;
  const auto* a = reinterpret_cast<const std::uint16_t*>(job.a[0]);
  const auto scale_of = [&](std::int64_t run, int j) {
    return job.b_scale == nullptr ? 1.0F : job.b_scale[run * kDotCols + j] * job.a_scale[0][run];
  };
  __m512 sum[kDotCols];
#pragma GCC unroll 4
  for (int j = 0; j < kDotCols; ++j) sum[j] = _mm512_setzero_ps();
  const std::int64_t all = job.run * job.runs;
  std::int64_t k = 0;
  if (job.run % 64 == 0) {
    for (std::int64_t r = 0; r < job.runs; ++r) {
      __m512 part[kDotCols];
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) part[j] = _mm512_setzero_ps();
      for (const std::int64_t end = k + job.run; k < end; k += 64) {
        const __m512i first = _mm512_loadu_si512(a + k), second = _mm512_loadu_si512(a + k + 32);
        const __m512 even[2] = {even_of(first), even_of(second)};
        const __m512 odd[2] = {odd_of(first), odd_of(second)};
#pragma GCC unroll 4
        for (int j = 0; j < kDotCols; ++j) {
          __m512i words[2];
          planes(_mm512_loadu_si512(job.b[j] + k), words);
#pragma GCC unroll 2
          for (int h = 0; h < 2; ++h) {
            part[j] = _mm512_fmadd_ps(even[h], even_of(words[h]), part[j]);
            part[j] = _mm512_fmadd_ps(odd[h], odd_of(words[h]), part[j]);
          }
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j)
        sum[j] = _mm512_fmadd_ps(part[j], _mm512_set1_ps(scale_of(r, j)), sum[j]);
    }
  } else {
    // Runs of 32, or of 16 times an odd number: half a vector of codes at a time.
    for (; k < all; k += 32) {
      const std::int64_t left = all - k;
      const __mmask32 there = left >= 32 ? ~0U : (1U << left) - 1;
      const __m512i row = _mm512_maskz_loadu_epi16(there, a + k);
      const __m512 even = even_of(row), odd = odd_of(row);
      // A run of sixteen changes the scale in the middle of the vector: eight words each.
      const std::int64_t first = k / job.run, last = (k + (left < 32 ? left : 32) - 1) / job.run;
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) {
        const __m256i codes = _mm256_maskz_loadu_epi8(there, job.b[j] + k);
        __m512i words[2];
        planes(_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 2, 3, 0, 1, 2, 3),
                                        _mm512_castsi256_si512(codes)),
               words);
        const __m512 scale = _mm512_mask_blend_ps(0xFF00, _mm512_set1_ps(scale_of(first, j)),
                                                  _mm512_set1_ps(scale_of(last, j)));
        const __m512 part =
            _mm512_fmadd_ps(odd, odd_of(words[0]), _mm512_mul_ps(even, even_of(words[0])));
        sum[j] = _mm512_fmadd_ps(part, scale, sum[j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kDotCols; ++j) job.sums[j] += _mm512_reduce_add_ps(sum[j]);
}

}  // namespace

DotKernel amx_dot_codes(const Format& format) {
  if (format == e4m3fn) return dot_codes<e4m3fn>;
  if (format == e5m2) return dot_codes<e5m2>;
  if (format == e2m1fn) return dot_codes<e2m1fn>;
  if (format == e2m3fn) return dot_codes<e2m3fn>;
  if (format == e3m2fn) return dot_codes<e3m2fn>;
  return nullptr;
}

}  // namespace octavo::cpu
