// Decode attention in bf16 without BFMMLA: up to four query rows against keys and values in bf16,
// read from memory unpacked.
#include <arm_neon.h>

#include <algorithm>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/neon_fp16/decode_attention_rows.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

// A bf16 is the upper half of an f32: of two neighbours one is shifted, the other masked.
struct Pairs {
  float32x4_t even, odd;
  [[gnu::always_inline]] explicit Pairs(const std::byte* from) {
    const uint32x4_t both =
        vreinterpretq_u32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)));
    even = vreinterpretq_f32_u32(vshlq_n_u32(both, 16));
    odd = vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xFFFF0000u)));
  }
};

template <int kKeys, int kRows>
[[gnu::always_inline]] inline void dots_bf16(const std::byte* keys, std::int64_t pitch,
                                             std::int64_t size, const std::byte* const* q,
                                             std::int64_t at, float* const* scores) {
  float32x4_t even[kRows][kKeys], odd[kRows][kKeys];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) even[r][i] = odd[r][i] = vdupq_n_f32(0.0F);
  for (std::int64_t d = 0; d < size; d += 8) {
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      const std::byte* from = keys + i * pitch + 2 * d;
      __builtin_prefetch(from + kAhead);
      const Pairs pair(from);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const auto* query = reinterpret_cast<const float*>(q[r]) + d;
        even[r][i] = vfmaq_f32(even[r][i], pair.even, vld1q_f32(query));
        odd[r][i] = vfmaq_f32(odd[r][i], pair.odd, vld1q_f32(query + 4));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i)
      scores[r][at + i] = vaddvq_f32(vaddq_f32(even[r][i], odd[r][i]));
}

template <int kRows>
bool dots_of_bf16(const DecodeRows& job, const std::byte* const* q, float* const* scores) {
  constexpr int kKeys = keys_for(kRows);
  std::int64_t i = 0;
  for (; i + kKeys <= job.keys; i += kKeys)
    dots_bf16<kKeys, kRows>(job.rows + i * job.pitch, job.pitch, job.size, q, i, scores);
  for (; i < job.keys; ++i)
    dots_bf16<1, kRows>(job.rows + i * job.pitch, job.pitch, job.size, q, i, scores);
  return true;
}

template <int kEights, int kRows>
[[gnu::always_inline]] inline void weigh_bf16(const DecodeRows& job, std::int64_t col,
                                              const DecodeWeights* rows) {
  float32x4_t even[kRows][kEights], odd[kRows][kEights];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < kEights; ++j) {
      const float32x4x2_t before = vld2q_f32(rows[r].sums + col + 8 * j);
      even[r][j] = before.val[0];
      odd[r][j] = before.val[1];
    }
  for (std::int64_t i = 0; i < job.keys; ++i) {
    const std::byte* row = job.rows + i * job.pitch + 2 * col;
    __builtin_prefetch(row + 4 * job.pitch);
    float32x4_t weight[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      weight[r] = vld1q_dup_f32(reinterpret_cast<const float*>(rows[r].packed) + i);
#pragma GCC unroll 8
    for (int j = 0; j < kEights; ++j) {
      const Pairs pair(row + 16 * j);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        even[r][j] = vfmaq_f32(even[r][j], pair.even, weight[r]);
        odd[r][j] = vfmaq_f32(odd[r][j], pair.odd, weight[r]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < kEights; ++j)
      vst2q_f32(rows[r].sums + col + 8 * j, {{even[r][j], odd[r][j]}});
}

template <int kRows>
bool weigh_of_bf16(const DecodeRows& job, const DecodeWeights* rows) {
  constexpr int kEights = vectors_for(kRows);
  std::int64_t col = 0;
  for (; col + 8 * kEights <= job.size; col += 8 * kEights)
    weigh_bf16<kEights, kRows>(job, col, rows);
  for (; col < job.size; col += 8) weigh_bf16<1, kRows>(job, col, rows);
  return true;
}

bool all_dots_of_bf16(const DecodeRows& job, const std::byte* const* q, int count,
                      float* const* scores, float* /*most_row_squares*/) {
  return for_rows(
      count, [&](int r) { return dots_of_bf16<1>(job, q + r, scores + r); },
      [&](int r) { return dots_of_bf16<2>(job, q + r, scores + r); },
      [&](int r) { return dots_of_bf16<4>(job, q + r, scores + r); });
}
bool all_weigh_of_bf16(const DecodeRows& job, const DecodeWeights* rows, int count) {
  return for_rows(
      count, [&](int r) { return weigh_of_bf16<1>(job, rows + r); },
      [&](int r) { return weigh_of_bf16<2>(job, rows + r); },
      [&](int r) { return weigh_of_bf16<4>(job, rows + r); });
}

// Separates the even and the odd elements of every eight.
void pack_pairs(const float* q, std::int64_t size, std::byte* laid) {
  auto* to = reinterpret_cast<float*>(laid);
  for (std::int64_t d = 0; d < size; d += 8)
    for (int i = 0; i < 4; ++i) {
      to[d + i] = q[d + 2 * i];
      to[d + 4 + i] = q[d + 2 * i + 1];
    }
}

}  // namespace

const DecodeKernels kNeonFp16DecodeBf16{all_dots_of_bf16, all_weigh_of_bf16, pack_pairs,
                                        PackedType::f32};

}  // namespace octavo::cpu
