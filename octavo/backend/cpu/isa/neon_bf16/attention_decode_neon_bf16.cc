// Decode attention in bf16 by BFMMLA: up to four query rows against keys and values read from
// memory unpacked. A pair of query rows costs as much as one. A single row takes the path of a
// pair, so that it has the same bits.
#include <arm_neon.h>

#include <cstring>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/backend/cpu/isa/neon_fp16/decode_attention_rows.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr int kLanes = 8;

// Two rows interleaved in steps of four elements: a pair of rows or columns of BFMMLA.
struct Interleaved {
  bfloat16x8_t low, high;
  [[gnu::always_inline]] Interleaved(bfloat16x8_t first, bfloat16x8_t second) {
    const uint64x2_t x = vreinterpretq_u64_bf16(first), y = vreinterpretq_u64_bf16(second);
    low = vreinterpretq_bf16_u64(vzip1q_u64(x, y));
    high = vreinterpretq_bf16_u64(vzip2q_u64(x, y));
  }
};

// Pairs of query rows, or of their weights, interleaved; n is a multiple of eight. The last row of
// an odd number is paired with itself.
template <int kPairs, std::int64_t kMax>
struct InterleavedPairs {
  alignas(64) bfloat16_t packed[kPairs][2 * kMax];

  [[gnu::always_inline]] InterleavedPairs(const std::byte* const (&rows)[2 * kPairs],
                                          std::int64_t n) {
    for (int p = 0; p < kPairs; ++p)
      for (std::int64_t i = 0; i < n; i += kLanes) {
        const Interleaved both(load_bf16(rows[2 * p] + 2 * i), load_bf16(rows[2 * p + 1] + 2 * i));
        vst1q_bf16(packed[p] + 2 * i, both.low);
        vst1q_bf16(packed[p] + 2 * i + kLanes, both.high);
      }
  }
};

// kKeyPairs pairs of keys for kPairs pairs of rows; the second key of a pair may be the first.
template <int kKeyPairs, int kPairs>
[[gnu::always_inline]] inline void dots(const std::byte* const (&keys)[2 * kKeyPairs],
                                        std::int64_t size,
                                        const InterleavedPairs<kPairs, kMaxHeadSize>& q,
                                        float32x4_t (&sum)[kPairs][kKeyPairs]) {
  float32x4_t low[kPairs][kKeyPairs], high[kPairs][kKeyPairs];
#pragma GCC unroll 2
  for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < kKeyPairs; ++i) low[p][i] = high[p][i] = vdupq_n_f32(0.0F);
  for (std::int64_t d = 0; d < size; d += kLanes)
#pragma GCC unroll 4
    for (int i = 0; i < kKeyPairs; ++i) {
      const std::byte *first = keys[2 * i] + 2 * d, *second = keys[2 * i + 1] + 2 * d;
      __builtin_prefetch(first + kAhead);
      __builtin_prefetch(second + kAhead);
      const Interleaved both(load_bf16(first), load_bf16(second));
#pragma GCC unroll 2
      for (int p = 0; p < kPairs; ++p) {
        low[p][i] = vbfmmlaq_f32(low[p][i], both.low, vld1q_bf16(q.packed[p] + 2 * d));
        high[p][i] = vbfmmlaq_f32(high[p][i], both.high, vld1q_bf16(q.packed[p] + 2 * d + kLanes));
      }
    }
#pragma GCC unroll 2
  for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < kKeyPairs; ++i) sum[p][i] = vaddq_f32(low[p][i], high[p][i]);
}

template <int kKeyPairs, int kRows>
[[gnu::always_inline]] inline void dots_at(const DecodeRows& job, std::int64_t at,
                                           const InterleavedPairs<(kRows + 1) / 2, kMaxHeadSize>& q,
                                           float* const* scores) {
  constexpr int kPairs = (kRows + 1) / 2;
  const std::byte* keys[2 * kKeyPairs];
  for (int i = 0; i < 2 * kKeyPairs; ++i)
    keys[i] = job.rows + (at + i < job.keys ? at + i : at) * job.pitch;
  float32x4_t sum[kPairs][kKeyPairs];
  dots<kKeyPairs, kPairs>(keys, job.size, q, sum);
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kKeyPairs; ++i) {
      // [first key | second key] x rows of the pair.
      float each[4];
      vst1q_f32(each, sum[r / 2][i]);
      scores[r][at + 2 * i] = each[r % 2];
      if (at + 2 * i + 1 < job.keys) scores[r][at + 2 * i + 1] = each[2 + r % 2];
    }
}

template <int kRows>
bool dots_of_rows(const DecodeRows& job, const std::byte* const* q, float* const* scores) {
  constexpr int kPairs = (kRows + 1) / 2,
                kTogether = 4;  // pairs of keys: enough independent chains
  const std::byte* rows[2 * kPairs];
  for (int r = 0; r < 2 * kPairs; ++r) rows[r] = q[r < kRows ? r : kRows - 1];
  const InterleavedPairs<kPairs, kMaxHeadSize> transposed(rows, job.size);
  std::int64_t i = 0;
  for (; i + 2 * kTogether <= job.keys; i += 2 * kTogether)
    dots_at<kTogether, kRows>(job, i, transposed, scores);
  for (; i < job.keys; i += 2) dots_at<1, kRows>(job, i, transposed, scores);
  return true;
}

// Transposes four keys of eight channels: the four keys of a channel together, two channels to a
// vector.
[[gnu::always_inline]] inline void transpose_four(const uint16x8_t (&key)[4],
                                                  bfloat16x8_t (&pair)[4]) {
  const uint32x4_t early[2] = {vreinterpretq_u32_u16(vzip1q_u16(key[0], key[1])),
                               vreinterpretq_u32_u16(vzip2q_u16(key[0], key[1]))},
                   late[2] = {vreinterpretq_u32_u16(vzip1q_u16(key[2], key[3])),
                              vreinterpretq_u32_u16(vzip2q_u16(key[2], key[3]))};
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    pair[2 * i] = vreinterpretq_bf16_u32(vzip1q_u32(early[i], late[i]));
    pair[2 * i + 1] = vreinterpretq_bf16_u32(vzip2q_u32(early[i], late[i]));
  }
}

// kEights times eight channels.
template <int kEights, int kRows>
[[gnu::always_inline]] inline void weigh_at(
    const DecodeRows& job, std::int64_t col,
    const InterleavedPairs<(kRows + 1) / 2, kDecodeKeys>& weights, const DecodeWeights* rows) {
  constexpr int kPairs = (kRows + 1) / 2;
  float32x4_t sum[kPairs][kEights][4];
#pragma GCC unroll 2
  for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 4
    for (int j = 0; j < kEights; ++j)
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) sum[p][j][c] = vdupq_n_f32(0.0F);
  const auto add = [&](std::int64_t key, const auto& load) {
#pragma GCC unroll 4
    for (int k = 0; k < kBf16Step; ++k)
      __builtin_prefetch(job.rows + (key + k + 8) * job.pitch + 2 * col);
#pragma GCC unroll 4
    for (int j = 0; j < kEights; ++j) {
      uint16x8_t four[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) four[k] = load(key + k, col + kLanes * j);
      bfloat16x8_t pair[4];
      transpose_four(four, pair);
#pragma GCC unroll 2
      for (int p = 0; p < kPairs; ++p) {
        const bfloat16x8_t weight = vld1q_bf16(weights.packed[p] + 2 * key);
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) sum[p][j][c] = vbfmmlaq_f32(sum[p][j][c], pair[c], weight);
      }
    }
  };
  const auto there = [&](std::int64_t key, std::int64_t e) {
    const std::byte* from = job.rows + key * job.pitch + 2 * e;
    return vld1q_u16(reinterpret_cast<const std::uint16_t*>(from));
  };
  std::int64_t key = 0;
  for (; key + kBf16Step <= job.keys; key += kBf16Step) add(key, there);
  // Rows beyond the last are not read.
  const auto there_or_zero = [&](std::int64_t k, std::int64_t e) {
    return k < job.keys ? there(k, e) : vdupq_n_u16(0);
  };
  if (key < job.keys) add(key, there_or_zero);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kEights; ++j)
#pragma GCC unroll 2
      for (int c = 0; c < 4; c += 2) {
        // [even channel | odd channel] x rows of the pair.
        const float32x4_t a = sum[r / 2][j][c], b = sum[r / 2][j][c + 1];
        float* to = rows[r].sums + col + kLanes * j + 2 * c;
        vst1q_f32(to, vaddq_f32(vld1q_f32(to), r % 2 == 0 ? vuzp1q_f32(a, b) : vuzp2q_f32(a, b)));
      }
}

template <int kRows>
bool weigh_rows(const DecodeRows& job, const DecodeWeights* rows) {
  constexpr int kPairs = (kRows + 1) / 2, kEights = 4 / kPairs;
  // Weights of keys beyond the last are zero, and so are the values they multiply.
  alignas(16) std::byte packed[kRows][kDecodeKeys * 2];
  const std::byte* each[2 * kPairs];
  const auto bytes = static_cast<std::size_t>(job.keys) * 2;
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(packed[r], rows[r].packed, bytes);
    std::memset(packed[r] + bytes, 0, sizeof packed[r] - bytes);
  }
  for (int r = 0; r < 2 * kPairs; ++r) each[r] = packed[r < kRows ? r : kRows - 1];
  const InterleavedPairs<kPairs, kDecodeKeys> weights(each, kDecodeKeys);
  std::int64_t col = 0;
  for (; col + kLanes * kEights <= job.size; col += kLanes * kEights)
    weigh_at<kEights, kRows>(job, col, weights, rows);
  for (; col < job.size; col += kLanes) weigh_at<1, kRows>(job, col, weights, rows);
  return true;
}

bool all_dots(const DecodeRows& job, const std::byte* const* q, int count, float* const* scores,
              float* /*most_row_squares*/) {
  return for_rows(
      count, [&](int r) { return dots_of_rows<1>(job, q + r, scores + r); },
      [&](int r) { return dots_of_rows<2>(job, q + r, scores + r); },
      [&](int r) { return dots_of_rows<4>(job, q + r, scores + r); });
}
bool all_weigh(const DecodeRows& job, const DecodeWeights* rows, int count) {
  return for_rows(
      count, [&](int r) { return weigh_rows<1>(job, rows + r); },
      [&](int r) { return weigh_rows<2>(job, rows + r); },
      [&](int r) { return weigh_rows<4>(job, rows + r); });
}

// Exact in bf16: the upper half is the value.
void pack_bf16(const float* q, std::int64_t size, std::byte* laid) {
  for (std::int64_t d = 0; d < size; ++d)
    std::memcpy(laid + 2 * d, reinterpret_cast<const std::byte*>(q + d) + 2, 2);
}

constexpr DecodeKernels kDecodeBf16{all_dots, all_weigh, pack_bf16, PackedType::bf16};

}  // namespace

const DecodeKernels* neon_bf16_decode_attention(const GemmOperand& operand) {
  const DecodeKernels* decode_kernels = neon_fp16_decode_attention(operand);
  return decode_kernels == &kNeonFp16DecodeBf16 ? &kDecodeBf16 : decode_kernels;
}

}  // namespace octavo::cpu
