// GEMV: one row of bf16 by four rows of codes, decoded in registers: by byte planes
// (avx512_vbmi/planes.h), or as integers. Pairs in a word are taken apart by shifts, on both sides
// alike: the order of elements in a sum does not matter. 64 codes take sixteen operations on two
// ports, five of them on the one that shuffles: as fast as a core reads memory.
#include <immintrin.h>

#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/dot_scales.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/planes.h"

namespace octavo::cpu {
namespace {

// 64 codes as f32: those with even k and those with odd k, 32 each in two vectors.
struct Values {
  __m512 even[2], odd[2];
};

template <const Format& kFormat>
struct FormatValues {
  Planes<Bfloat, kFormat> planes;

  [[gnu::always_inline]] Values operator()(__m512i codes) const {
    __m512i words[2];
    planes(codes, words);
    return {{even_of(words[0]), even_of(words[1])}, {odd_of(words[0]), odd_of(words[1])}};
  }
};

// mxint8 and int8: integers in units of the smallest value.
template <const Format& kFormat>
struct IntegerValues {
  [[gnu::always_inline]] Values operator()(__m512i codes) const {
    const __m512i words[2] = {_mm512_cvtepi8_epi16(_mm512_castsi512_si256(codes)),
                              _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(codes, 1))};
    const __m512 unit = _mm512_set1_ps(static_cast<float>(min_positive(kFormat)));
    Values values;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(words[h], 16), 16);
      values.even[h] = _mm512_mul_ps(_mm512_cvtepi32_ps(low), unit);
      values.odd[h] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(words[h], 16)), unit);
    }
    return values;
  }
};

struct DotSums {
  __m512 of[kDotCols];

  [[gnu::always_inline]] DotSums() {
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) of[j] = _mm512_setzero_ps();
  }
};

// Runs that are multiples of 64: scales are applied once a run.
template <bool kChanges, typename ValuesOf>
[[gnu::always_inline]] inline void long_runs(const DotJob& job, const ValuesOf& values_of,
                                             DotSums& sums) {
  const auto* a = reinterpret_cast<const std::uint16_t*>(job.a[0]);
  const DotScales<false, kChanges> scales(job);
  std::int64_t k = 0;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    DotSums part;
    for (const std::int64_t end = k + job.run; k < end; k += 64) {
      const __m512i first = _mm512_loadu_si512(a + k), second = _mm512_loadu_si512(a + k + 32);
      const __m512 even[2] = {even_of(first), even_of(second)};
      const __m512 odd[2] = {odd_of(first), odd_of(second)};
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) {
        const Values values = values_of(_mm512_loadu_si512(job.b[j] + k));
        _mm_prefetch(job.b[j] + k + job.ahead, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          part.of[j] = _mm512_fmadd_ps(even[h], values.even[h], part.of[j]);
          part.of[j] = _mm512_fmadd_ps(odd[h], values.odd[h], part.of[j]);
        }
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j)
      sums.of[j] = scales.add(sums.of[j], part.of[j], r * job.run, j);
  }
}

// Runs of 32 or sixteen: a scale for every half of 32 elements.
template <bool kSixteens, bool kChanges, typename ValuesOf>
[[gnu::always_inline]] inline void short_runs(const DotJob& job, const ValuesOf& values_of,
                                              DotSums& sums) {
  const auto* a = reinterpret_cast<const std::uint16_t*>(job.a[0]);
  const DotScales<kSixteens, kChanges> scales(job);
  const std::int64_t all = job.run * job.runs;
  for (std::int64_t k = 0; k < all; k += 64) {
    const std::int64_t left = all - k;
    const __mmask64 there = left >= 64 ? ~0ULL : (1ULL << left) - 1;
    const __m512i row[2] = {
        _mm512_maskz_loadu_epi16(static_cast<__mmask32>(there), a + k),
        _mm512_maskz_loadu_epi16(static_cast<__mmask32>(there >> 32), a + k + 32)};
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) {
      const Values values = values_of(_mm512_maskz_loadu_epi8(there, job.b[j] + k));
      _mm_prefetch(job.b[j] + k + job.ahead, _MM_HINT_T0);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        if (32 * h >= left) break;
        const __m512 part = _mm512_fmadd_ps(odd_of(row[h]), values.odd[h],
                                            _mm512_mul_ps(even_of(row[h]), values.even[h]));
        sums.of[j] = scales.add(sums.of[j], part, k + 32 * h, j);
      }
    }
  }
}

template <bool kChanges, typename ValuesOf>
[[gnu::always_inline]] inline void any_runs(const DotJob& job, const ValuesOf& values_of,
                                            DotSums& sums) {
  if (job.run % 64 == 0)
    long_runs<kChanges>(job, values_of, sums);
  else if (job.run == 16)
    short_runs<true, kChanges>(job, values_of, sums);
  else
    short_runs<false, kChanges>(job, values_of, sums);
}

template <typename ValuesOf>
void dot_codes(const DotJob& job) {
  const ValuesOf values_of;
  DotSums sums;
  job.a_scale_changes ? any_runs<true>(job, values_of, sums)
                      : any_runs<false>(job, values_of, sums);
  const float last = last_scale(job);
#pragma GCC unroll 4
  for (int j = 0; j < kDotCols; ++j) job.sums[j] += _mm512_reduce_add_ps(sums.of[j]) * last;
}

}  // namespace

DotKernel amx_dot_codes(const Format& format) {
  if (format == e4m3fn) return dot_codes<FormatValues<e4m3fn>>;
  if (format == e5m2) return dot_codes<FormatValues<e5m2>>;
  if (format == e2m1fn) return dot_codes<FormatValues<e2m1fn>>;
  if (format == e2m3fn) return dot_codes<FormatValues<e2m3fn>>;
  if (format == e3m2fn) return dot_codes<FormatValues<e3m2fn>>;
  if (format == mxint8) return dot_codes<IntegerValues<mxint8>>;
  if (format == int8) return dot_codes<IntegerValues<int8>>;
  return nullptr;
}

}  // namespace octavo::cpu
