// GEMV: one row of bf16 by four rows of e2m1, two codes in a byte. A byte is widened to a word, and
// VPERMPS, which takes four bits of an index, looks up the value of its lower and of its upper
// code: f32 of the elements with even and with odd k, as the row's own pairs are taken apart. 32
// codes take six operations on two ports, and two more for a scale.
#include <immintrin.h>

#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/dot_scales.h"
#include "octavo/format/decode.h"

namespace octavo::cpu {
namespace {

struct ValueTable {
  alignas(64) float at[16]{};

  constexpr ValueTable() {
    for (std::uint32_t code = 0; code < 16; ++code)
      at[code] = static_cast<float>(decode(e2m1fn, code));
  }
};
constexpr ValueTable kValues;

template <bool kSixteens, bool kChanges>
[[gnu::always_inline]] inline void dot_runs(const DotJob& job) {
  const auto* a = reinterpret_cast<const std::uint16_t*>(job.a[0]);
  const __m512 values = _mm512_load_ps(kValues.at);
  __m512 sum[kDotCols];
#pragma GCC unroll 4
  for (int j = 0; j < kDotCols; ++j) sum[j] = _mm512_setzero_ps();
  const DotScales<kSixteens, kChanges> scales(job);
  const std::int64_t all = job.run * job.runs;
  for (std::int64_t k = 0; k < all; k += 32) {
    const std::int64_t left = all - k;
    const __mmask32 there = left >= 32 ? ~0U : (1U << left) - 1;
    const auto bytes = static_cast<__mmask16>(left >= 32 ? 0xFFFF : (1U << left / 2) - 1);
    const __m512i row = _mm512_maskz_loadu_epi16(there, a + k);
    const __m512 even = even_of(row), odd = odd_of(row);
    if (k % 128 == 0) {
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) _mm_prefetch(job.b[j] + k / 2 + job.ahead, _MM_HINT_T0);
    }
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) {
      const __m512i two = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(bytes, job.b[j] + k / 2));
      const __m512 lower = _mm512_permutexvar_ps(two, values);
      const __m512 upper = _mm512_permutexvar_ps(_mm512_srli_epi32(two, 4), values);
      const __m512 part = _mm512_fmadd_ps(odd, upper, _mm512_mul_ps(even, lower));
      sum[j] = scales.add(sum[j], part, k, j);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kDotCols; ++j) job.sums[j] += _mm512_reduce_add_ps(sum[j]) * last_scale(job);
}

void dot_e2m1(const DotJob& job) {
  if (job.run == 16)
    return job.a_scale_changes ? dot_runs<true, true>(job) : dot_runs<true, false>(job);
  return job.a_scale_changes ? dot_runs<false, true>(job) : dot_runs<false, false>(job);
}

}  // namespace

DotKernel amx_dot_nibbles(const Format& format) { return format == e2m1fn ? dot_e2m1 : nullptr; }

}  // namespace octavo::cpu
