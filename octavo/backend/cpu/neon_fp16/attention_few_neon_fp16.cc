// Up to four query rows against keys and values in e4m3, as they lie in memory. A code is turned
// into a number once for all of them. Where one is NaN, whoever called does it again another way.
#include <arm_neon.h>

#include <algorithm>

#include "octavo/backend/cpu/attention_few.h"
#include "octavo/backend/cpu/neon_fp16/e4m3_halves.h"
#include "octavo/backend/cpu/neon_fp16/few_rows.h"
#include "octavo/backend/cpu/neon_fp16/neon_fp16_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC moves loads up before it hands out registers, and then runs out of them.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr std::int64_t kRun = 32;  // of weighted values in f16

// Sums of eight lanes of each of two keys. Two of three roundings are in f16: turning it into f32
// has one pipe, and takes that for two cycles.
[[gnu::always_inline]] inline float32x2_t folded_pair(float16x8_t first, float16x8_t second) {
  const float16x8_t both = vpaddq_f16(first, second);
  const float32x4_t fours = vpaddq_f32(vcvt_f32_f16(vget_low_f16(both)), vcvt_high_f32_f16(both));
  return vpadd_f32(vget_low_f32(fours), vget_high_f32(fours));
}

// kKeys keys for kRows queries; returns the largest field met.
template <int kKeys, int kRows>
[[gnu::always_inline]] inline uint8x16_t dots_e4m3(const std::byte* keys, std::int64_t pitch,
                                                   std::int64_t size, const std::byte* const* q,
                                                   uint8x16_t most, std::int64_t at,
                                                   float* const* scores) {
  float16x8_t low[kRows][kKeys], high[kRows][kKeys];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) low[r][i] = high[r][i] = vdupq_n_f16(0);
  uint8x16_t codes[kKeys];
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) codes[i] = load_codes(keys + i * pitch);
  for (std::int64_t d = 0; d < size; d += 16) {
    const std::int64_t next = d + 16 < size ? d + 16 : d;
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      const E4m3Halves half(codes[i]);
      most = vmaxq_u8(most, fields_of(codes[i]));
      // As soon as there is a register for them, so that they are there when their turn comes.
      codes[i] = load_codes(keys + i * pitch + next);
      __builtin_prefetch(keys + i * pitch + d + kAhead);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const auto* query = reinterpret_cast<const float16_t*>(q[r]) + d;
        low[r][i] = vfmaq_f16(low[r][i], half.low, vld1q_f16(query));
        high[r][i] = vfmaq_f16(high[r][i], half.high, vld1q_f16(query + 8));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kKeys == 1) {
      const float16x8_t sum = vaddq_f16(low[r][0], high[r][0]);
      vst1_lane_f32(scores[r] + at, folded_pair(sum, sum), 0);
    } else {
#pragma GCC unroll 2
      for (int i = 0; i + 1 < kKeys; i += 2)
        vst1_f32(scores[r] + at + i, folded_pair(vaddq_f16(low[r][i], high[r][i]),
                                                 vaddq_f16(low[r][i + 1], high[r][i + 1])));
    }
  }
  return most;
}

template <int kRows>
bool dots_of_e4m3(const FewRows& job, const std::byte* const* q, float* const* scores) {
  constexpr int kKeys = keys_for(kRows);
  uint8x16_t most = vdupq_n_u8(0);
  std::int64_t i = 0;
  for (; i + kKeys <= job.keys; i += kKeys)
    most =
        dots_e4m3<kKeys, kRows>(job.rows + i * job.pitch, job.pitch, job.size, q, most, i, scores);
  for (; i < job.keys; ++i)
    most = dots_e4m3<1, kRows>(job.rows + i * job.pitch, job.pitch, job.size, q, most, i, scores);
  return vmaxvq_u8(most) < kNanField;
}

// kSixteens times sixteen columns.
template <int kSixteens, int kRows>
[[gnu::always_inline]] inline uint8x16_t weigh_e4m3(const FewRows& job, std::int64_t col,
                                                    const FewWeights* rows, uint8x16_t most) {
  for (std::int64_t first = 0; first < job.keys; first += kRun) {
    const std::int64_t last = std::min(first + kRun, job.keys);
    float16x8_t low[kRows][kSixteens], high[kRows][kSixteens];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < kSixteens; ++j) low[r][j] = high[r][j] = vdupq_n_f16(0);
    const std::byte* row = job.rows + first * job.pitch + col;
    uint8x16_t codes[kSixteens];
#pragma GCC unroll 8
    for (int j = 0; j < kSixteens; ++j) codes[j] = load_codes(row + 16 * j);
    for (std::int64_t i = first; i < last; ++i) {
      float16x8_t weight[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        weight[r] = vld1q_dup_f16(reinterpret_cast<const float16_t*>(rows[r].lanes) + i);
      __builtin_prefetch(row + 8 * job.pitch);
      if (i + 1 < last) row += job.pitch;
#pragma GCC unroll 8
      for (int j = 0; j < kSixteens; ++j) {
        const E4m3Halves half(codes[j]);
        most = vmaxq_u8(most, fields_of(codes[j]));
        codes[j] = load_codes(row + 16 * j);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          low[r][j] = vfmaq_f16(low[r][j], half.low, weight[r]);
          high[r][j] = vfmaq_f16(high[r][j], half.high, weight[r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < kSixteens; ++j) {
        const float32x4_t part[4] = {
            vcvt_f32_f16(vget_low_f16(low[r][j])), vcvt_high_f32_f16(low[r][j]),
            vcvt_f32_f16(vget_low_f16(high[r][j])), vcvt_high_f32_f16(high[r][j])};
        for (int p = 0; p < 4; ++p) {
          float* to = rows[r].sums + col + 16 * j + 4 * p;
          vst1q_f32(to, vfmaq_n_f32(vld1q_f32(to), part[p], rows[r].factor));
        }
      }
  }
  return most;
}

template <int kRows>
bool weigh_of_e4m3(const FewRows& job, const FewWeights* rows) {
  constexpr int kSixteens = vectors_for(kRows);
  uint8x16_t most = vdupq_n_u8(0);
  std::int64_t col = 0;
  for (; col + 16 * kSixteens <= job.size; col += 16 * kSixteens)
    most = weigh_e4m3<kSixteens, kRows>(job, col, rows, most);
  for (; col + 32 <= job.size; col += 32) most = weigh_e4m3<2, kRows>(job, col, rows, most);
  for (; col < job.size; col += 16) most = weigh_e4m3<1, kRows>(job, col, rows, most);
  return vmaxvq_u8(most) < kNanField;
}

bool all_dots_of_e4m3(const FewRows& job, const std::byte* const* q, int count,
                      float* const* scores) {
  return for_rows(
      count, [&](int r) { return dots_of_e4m3<1>(job, q + r, scores + r); },
      [&](int r) { return dots_of_e4m3<2>(job, q + r, scores + r); },
      [&](int r) { return dots_of_e4m3<4>(job, q + r, scores + r); });
}
bool all_weigh_of_e4m3(const FewRows& job, const FewWeights* rows, int count) {
  return for_rows(
      count, [&](int r) { return weigh_of_e4m3<1>(job, rows + r); },
      [&](int r) { return weigh_of_e4m3<2>(job, rows + r); },
      [&](int r) { return weigh_of_e4m3<4>(job, rows + r); });
}

// By exponents alone: squares of the largest numbers that have them, in units of kSquare, rounded
// up. 448^2 is 127 of them, so that two are added in a byte.
void most_squares(const FewRows& job, float* squares) {
  constexpr float kSquare = 1581.0F;
  static constexpr std::uint8_t kOfExponent[16] = {1, 1, 1, 1, 1, 1,  1,  1,
                                                   1, 1, 1, 1, 3, 10, 37, 127};
  const uint8x16_t half = vld1q_u8(kOfExponent);
  const uint8x16x2_t table{{half, half}};  // of either sign
  const auto of = [&](uint8x16_t code) { return vqtbl2q_u8(table, vshrq_n_u8(code, 3)); };
  static_assert(kMostHeadSize / 16 * 2 * 127 < 65536);
  constexpr int kKeys = 4;
  for (std::int64_t i = 0; i < job.keys; i += kKeys) {
    const std::byte* row[kKeys];
    uint16x8_t sum[kKeys];
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) {
      row[j] = job.rows + std::min(i + j, job.keys - 1) * job.pitch;
      sum[j] = vdupq_n_u16(0);
    }
    std::int64_t d = 0;
    for (; d + 32 <= job.size; d += 32)
#pragma GCC unroll 4
      for (int j = 0; j < kKeys; ++j)
        sum[j] = vpadalq_u8(sum[j],
                            vaddq_u8(of(load_codes(row[j] + d)), of(load_codes(row[j] + d + 16))));
    if (d < job.size)
#pragma GCC unroll 4
      for (int j = 0; j < kKeys; ++j) sum[j] = vpadalq_u8(sum[j], of(load_codes(row[j] + d)));
    const uint32x4_t all = vpaddq_u32(vpaddq_u32(vpaddlq_u16(sum[0]), vpaddlq_u16(sum[1])),
                                      vpaddq_u32(vpaddlq_u16(sum[2]), vpaddlq_u16(sum[3])));
    vst1q_f32(squares + i, vmulq_n_f32(vcvtq_f32_u32(all), kSquare / (kFewFactor * kFewFactor)));
  }
}

void lay_halves(const float* q, std::int64_t size, std::byte* laid) {
  neon_fp16_narrow(q, laid, size);
}

}  // namespace

const FewKernels kNeonFp16FewE4m3{all_dots_of_e4m3, all_weigh_of_e4m3,      lay_halves,
                                  Lane::f16,        neon_fp16_code_squares, most_squares};

const FewKernels* neon_fp16_few(const GemmOperand& operand) {
  const Matrix& elements = operand.elements();
  if (!operand.is_quantized())
    return elements.dtype == DType::bf16 && elements.col_stride == 2 ? &kNeonFp16FewBf16 : nullptr;
  const bool per_row = tile_extent(operand.quantized.tile.cols, elements.cols) == elements.cols;
  return elements.format == e4m3fn && elements.col_stride == 1 && per_row ? &kNeonFp16FewE4m3
                                                                          : nullptr;
}

}  // namespace octavo::cpu
