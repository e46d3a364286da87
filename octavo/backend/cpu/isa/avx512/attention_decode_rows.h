// Decode attention over a source of rows (bf16, e4m3), read from memory once: queries, weights and
// sums are f32. A source makes vectors of f32 from a block of elements, in any order that its
// `element_of` says; queries are laid out in that order, and sums are put in order at the end.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/avx512/bf16_pairs.h"
#include "octavo/backend/cpu/isa/avx512/transpose16.h"

namespace octavo::cpu {
namespace {

constexpr int kKeysAtOnce = 4;      // chains of sums that do not wait for each other
constexpr std::int64_t kSums = 16;  // keys whose lanes are added up together

// scores[r][i] of sixteen keys, of which `keys` are real. Returns whether all are numbers.
template <typename Source, int kRows>
[[gnu::always_inline]] inline bool dots16(const Source& source, const DecodeRows& job,
                                          std::int64_t at, std::int64_t keys,
                                          const std::byte* const* q, float* const* scores) {
  constexpr int kVectors = Source::kVectors;
  alignas(64) float lanes[kRows][kSums][16];
  for (std::int64_t key = 0; key < kSums; key += kKeysAtOnce) {
    __m512 sum[kRows][kKeysAtOnce];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < kKeysAtOnce; ++i) sum[r][i] = _mm512_setzero_ps();
    const std::byte* from[kKeysAtOnce];
#pragma GCC unroll 4
    for (int i = 0; i < kKeysAtOnce; ++i)  // keys beyond the last are read as the last
      from[i] = job.rows + (at + (key + i < keys ? key + i : keys - 1)) * job.pitch;
    for (std::int64_t d = 0; key < keys && d < job.size; d += Source::kBlock) {
#pragma GCC unroll 4
      for (int i = 0; i < kKeysAtOnce; ++i) {
        __m512 k[kVectors];
        source.load(from[i], d, job.size, k);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v)
            sum[r][i] = _mm512_fmadd_ps(
                k[v], _mm512_loadu_ps(reinterpret_cast<const float*>(q[r]) + d + v * 16),
                sum[r][i]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < kKeysAtOnce; ++i) _mm512_store_ps(lanes[r][key + i], sum[r][i]);
  }
  const auto there = static_cast<__mmask16>((1U << keys) - 1);
  bool good = true;
  for (int r = 0; r < kRows; ++r) {
    __m512i all[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) all[i] = _mm512_load_si512(lanes[r][i]);
    transpose(all);
#pragma GCC unroll 4
    for (int half = 8; half > 0; half /= 2)
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i)
        all[i] = _mm512_castps_si512(
            _mm512_add_ps(_mm512_castsi512_ps(all[i]), _mm512_castsi512_ps(all[i + half])));
    _mm512_mask_storeu_epi32(scores[r] + at, there, all[0]);
    const __m512 sums = _mm512_castsi512_ps(all[0]);
    good &= (_mm512_cmp_ps_mask(sums, sums, _CMP_UNORD_Q) & there) == 0;
  }
  return good;
}

// One block of channels: sums[e] += sum_i weight_i rows[i][e], put in order at the end.
template <typename Source, int kRows>
[[gnu::always_inline]] inline bool weigh_block(const Source& source, const DecodeRows& job,
                                               std::int64_t col, const DecodeWeights* rows) {
  constexpr int kVectors = Source::kVectors;
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < job.keys; ++i) {
    __m512 values[kVectors];
    source.load(job.rows + i * job.pitch, col, job.size, values);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512 weight = _mm512_set1_ps(reinterpret_cast<const float*>(rows[r].packed)[i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_fmadd_ps(values[v], weight, sum[r][v]);
    }
  }
  bool good = true;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    Source::put_in_order(sum[r]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      if (col + v * 16 >= job.size) break;  // sizes are multiples of sixteen
      float* const to = rows[r].sums + col + v * 16;
      const __m512 all =
          _mm512_fmadd_ps(sum[r][v], _mm512_set1_ps(rows[r].factor), _mm512_loadu_ps(to));
      _mm512_storeu_ps(to, all);
      good &= _mm512_cmp_ps_mask(all, all, _CMP_UNORD_Q) == 0;
    }
  }
  return good;
}

template <typename Source>
struct DecodeOver {
  static bool dots(const DecodeRows& job, const std::byte* const* q, int count,
                   float* const* scores, float* /*most_row_squares*/) {
    const Source source;
    bool good = true;
    with_rows(
        count, [&]<int kRows>() __attribute__((always_inline)) {
          for (std::int64_t at = 0; at < job.keys; at += kSums) {
            const std::int64_t left = job.keys - at;
            good &= dots16<Source, kRows>(source, job, at, left < kSums ? left : kSums, q, scores);
          }
        });
    return good || !Source::kHasNan;
  }
  static bool weigh(const DecodeRows& job, const DecodeWeights* rows, int count) {
    const Source source;
    bool good = true;
    with_rows(
        count, [&]<int kRows>() __attribute__((always_inline)) {
          for (std::int64_t col = 0; col < job.size; col += Source::kBlock)
            good &= weigh_block<Source, kRows>(source, job, col, rows);
        });
    return good || !Source::kHasNan;
  }
  static void pack_query(const float* q, std::int64_t size, std::byte* laid) {
    auto* to = reinterpret_cast<float*>(laid);
    for (std::int64_t d = 0; d < size; d += Source::kBlock)
      for (int i = 0; i < Source::kBlock; ++i) {
        const std::int64_t from = d + Source::element_of(i);
        to[d + i] = from < size ? q[from] : 0.0F;
      }
  }
};
template <typename Source>
constexpr DecodeKernels kDecodeOver{DecodeOver<Source>::dots, DecodeOver<Source>::weigh,
                                    DecodeOver<Source>::pack_query, PackedType::f32};

}  // namespace
}  // namespace octavo::cpu
