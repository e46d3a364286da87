// Up to four rows by packed weights: tiles would multiply sixteen. Lanes are columns, an element of
// A is broadcast, and scales are applied to the sums of a run, of all columns at once.
//
// For 64 codes of eight bits: one load, six operations that decode, four that widen, four products
// for each row, on two ports: memory is slower.
#pragma once

#include <immintrin.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/amx/pack_columns.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/backend/cpu/isa/avx512/bf16_pairs.h"

namespace octavo::cpu {
namespace {

// A row of a panel of A (lines of 32 elements for each of 32 rows) as f32.
inline void widen_row(const std::byte* panel, int row, std::int64_t n, float* to) {
  for (std::int64_t k = 0; k < n; k += kHalf) {
    const std::byte* from = panel + ((k / kSide * kSide + row) * kSide + k % kSide) * 2;
    const __m512i words =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    _mm512_store_ps(to + k, _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)));
  }
}

template <typename Columns, int kRows>
void multiply_rows_of_codes(const Columns& given, const PackJob& codes, const MicrokernelJob& job) {
  constexpr int kCodes = Columns::kCodes;
  constexpr std::int64_t kAhead = 4096;
  const FpEnvGuard guard;
  const Columns columns = given;
  ScaleColumns scales[2] = {{codes, Columns::kLift}, {codes, Columns::kLift}};
  alignas(64) float a[kRows][kMaxKc];
  for (int i = 0; i < kRows; ++i) widen_row(job.a, i, codes.n, a[i]);
  const bool of_tiles = codes.is_scaled(), in_runs = !of_tiles && !job.scales_at_end;
  const std::int64_t length = of_tiles ? codes.run : in_runs ? job.run : codes.n;
  __m512 total[2][kRows];
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half)
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
      total[half][i] = job.overwrites ? _mm512_setzero_ps()
                                      : _mm512_loadu_ps(job.sums + i * job.pitch + half * kHalf);
  const std::uint8_t* from = codes.words;
  for (std::int64_t begin = 0; begin < codes.n; begin += length) {
    __m512 sum[2][kRows][2];  // of even and odd elements: two chains
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half)
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sum[half][i][0] = sum[half][i][1] = _mm512_setzero_ps();
    for (std::int64_t k = begin; k < begin + length; k += kCodes) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half, from += kLine) {
        __m512i pairs[kCodes / 2];
        columns(_mm512_loadu_si512(from), pairs);
        _mm_prefetch(from + kAhead, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int j = 0; j < kCodes / 2; ++j) {
          const __m512 even = even_of(pairs[j]), odd = odd_of(pairs[j]);
#pragma GCC unroll 4
          for (int i = 0; i < kRows; ++i) {
            const float* x = a[i] + k + 2 * j;
            sum[half][i][0] = _mm512_fmadd_ps(even, _mm512_set1_ps(x[0]), sum[half][i][0]);
            sum[half][i][1] = _mm512_fmadd_ps(odd, _mm512_set1_ps(x[1]), sum[half][i][1]);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m512 scale = _mm512_set1_ps(1.0F);
      if (of_tiles) {
        scales[half].load(half * kHalf, begin);
        scale = scales[half](begin);
      }
      const std::int64_t run = in_runs ? begin / length : 0;
      if (in_runs) scale = _mm512_loadu_ps(job.b_scale + run * kSide + half * kHalf);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        __m512 part = _mm512_mul_ps(_mm512_add_ps(sum[half][i][0], sum[half][i][1]), scale);
        if (in_runs) part = _mm512_mul_ps(part, _mm512_set1_ps(job.a_scale[run * kSide + i]));
        total[half][i] = _mm512_add_ps(total[half][i], part);
      }
    }
  }
  const bool ends = job.scales_at_end && job.a_scale != nullptr;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half)
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      __m512 value = total[half][i];
      if (ends)
        value = _mm512_mul_ps(_mm512_mul_ps(value, _mm512_loadu_ps(job.b_scale + half * kHalf)),
                              _mm512_set1_ps(job.a_scale[i]));
      _mm512_storeu_ps(job.sums + i * job.pitch + half * kHalf, value);
    }
}

template <typename Columns>
void multiply_small_m(const Columns& columns, const PackJob& codes, const MicrokernelJob& job) {
  with_rows(job.rows,
            [&]<int kRows>() { multiply_rows_of_codes<Columns, kRows>(columns, codes, job); });
}

}  // namespace
}  // namespace octavo::cpu
