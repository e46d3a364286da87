// One query row against keys and values in e4m3 or bf16, as they lie in memory.
// Where a code is NaN, whoever called does it again another way.
#include <arm_neon.h>

#include "octavo/backend/cpu/attention_few.h"
#include "octavo/backend/cpu/neon_fp16/e4m3_halves.h"
#include "octavo/backend/cpu/neon_fp16/neon_fp16_internal.h"

namespace octavo::cpu {
namespace {

constexpr int kTogether = 4;           // keys
constexpr std::int64_t kRun = 32;      // of weighted values in f16
constexpr std::int64_t kAhead = 1024;  // bytes that memory is asked for ahead

// kKeys rows at a time; returns the largest field met.
template <int kKeys>
[[gnu::always_inline]] inline uint8x16_t dots_e4m3(const std::byte* rows, std::int64_t pitch,
                                                   std::int64_t size, const float16_t* q,
                                                   uint8x16_t most, float* scores) {
  float16x8_t low[kKeys], high[kKeys];
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) low[i] = high[i] = vdupq_n_f16(0);
  for (std::int64_t d = 0; d < size; d += 16) {
    const float16x8_t left = vld1q_f16(q + d), right = vld1q_f16(q + d + 8);
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      const uint8x16_t codes = load_codes(rows + i * pitch + d);
      __builtin_prefetch(rows + i * pitch + d + kAhead);
      const E4m3Halves half(codes);
      most = vmaxq_u8(most, fields_of(codes));
      low[i] = vfmaq_f16(low[i], half.low, left);
      high[i] = vfmaq_f16(high[i], half.high, right);
    }
  }
  if constexpr (kKeys == kTogether) {
    // Two of three roundings of sums of sixteen are in f16: turning it into f32 has one pipe, and
    // takes that for two cycles.
    float16x8_t sum[kKeys];
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) sum[i] = vaddq_f16(low[i], high[i]);
    const float16x8_t first = vpaddq_f16(sum[0], sum[1]), second = vpaddq_f16(sum[2], sum[3]);
    const auto pairs = [](float16x8_t both) {
      return vpaddq_f32(vcvt_f32_f16(vget_low_f16(both)), vcvt_high_f32_f16(both));
    };
    vst1q_f32(scores, vpaddq_f32(pairs(first), pairs(second)));
  } else {
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i)
      scores[i] = vaddvq_f32(vaddq_f32(folded(low[i]), folded(high[i])));
  }
  return most;
}

bool dots_of_e4m3(const FewRows& job, const std::byte* q, float* scores) {
  const auto* query = reinterpret_cast<const float16_t*>(q);
  uint8x16_t most = vdupq_n_u8(0);
  std::int64_t i = 0;
  for (; i + kTogether <= job.keys; i += kTogether)
    most = dots_e4m3<kTogether>(job.rows + i * job.pitch, job.pitch, job.size, query, most,
                                scores + i);
  for (; i < job.keys; ++i)
    most = dots_e4m3<1>(job.rows + i * job.pitch, job.pitch, job.size, query, most, scores + i);
  return vmaxvq_u8(most) < kNanField;
}

// kSixteens times sixteen columns.
template <int kSixteens>
[[gnu::always_inline]] inline uint8x16_t weigh_e4m3(const FewRows& job, std::int64_t col,
                                                    const float16_t* weights, float factor,
                                                    uint8x16_t most, float* sums) {
  for (std::int64_t first = 0; first < job.keys; first += kRun) {
    const std::int64_t last = first + kRun < job.keys ? first + kRun : job.keys;
    float16x8_t low[kSixteens], high[kSixteens];
#pragma GCC unroll 8
    for (int j = 0; j < kSixteens; ++j) low[j] = high[j] = vdupq_n_f16(0);
    for (std::int64_t i = first; i < last; ++i) {
      const float16x8_t weight = vld1q_dup_f16(weights + i);
      const std::byte* row = job.rows + i * job.pitch + col;
      __builtin_prefetch(row + 8 * job.pitch);
#pragma GCC unroll 8
      for (int j = 0; j < kSixteens; ++j) {
        const uint8x16_t codes = load_codes(row + 16 * j);
        const E4m3Halves half(codes);
        most = vmaxq_u8(most, fields_of(codes));
        low[j] = vfmaq_f16(low[j], half.low, weight);
        high[j] = vfmaq_f16(high[j], half.high, weight);
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kSixteens; ++j) {
      const float32x4_t part[4] = {vcvt_f32_f16(vget_low_f16(low[j])), vcvt_high_f32_f16(low[j]),
                                   vcvt_f32_f16(vget_low_f16(high[j])), vcvt_high_f32_f16(high[j])};
      for (int p = 0; p < 4; ++p) {
        float* to = sums + col + 16 * j + 4 * p;
        vst1q_f32(to, vfmaq_n_f32(vld1q_f32(to), part[p], factor));
      }
    }
  }
  return most;
}

bool weigh_of_e4m3(const FewRows& job, const std::byte* weights, float factor, float* sums) {
  const auto* weight = reinterpret_cast<const float16_t*>(weights);
  uint8x16_t most = vdupq_n_u8(0);
  std::int64_t col = 0;
  for (; col + 128 <= job.size; col += 128)
    most = weigh_e4m3<8>(job, col, weight, factor, most, sums);
  for (; col + 64 <= job.size; col += 64)
    most = weigh_e4m3<4>(job, col, weight, factor, most, sums);
  for (; col < job.size; col += 16) most = weigh_e4m3<1>(job, col, weight, factor, most, sums);
  return vmaxvq_u8(most) < kNanField;
}

// A bf16 is the upper half of an f32: of two neighbours one is shifted up, the other masked.
struct Pairs {
  float32x4_t even, odd;
  [[gnu::always_inline]] explicit Pairs(const std::byte* from) {
    const uint32x4_t both = vreinterpretq_u32_u8(load_codes(from));
    even = vreinterpretq_f32_u32(vshlq_n_u32(both, 16));
    odd = vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xFFFF0000u)));
  }
};

template <int kKeys>
[[gnu::always_inline]] inline void dots_bf16(const std::byte* rows, std::int64_t pitch,
                                             std::int64_t size, const float* q, float* scores) {
  float32x4_t even[kKeys], odd[kKeys];
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) even[i] = odd[i] = vdupq_n_f32(0.0F);
  for (std::int64_t d = 0; d < size; d += 8) {
    const float32x4_t left = vld1q_f32(q + d), right = vld1q_f32(q + d + 4);
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      const std::byte* at = rows + i * pitch + 2 * d;
      __builtin_prefetch(at + kAhead);
      const Pairs pair(at);
      even[i] = vfmaq_f32(even[i], pair.even, left);
      odd[i] = vfmaq_f32(odd[i], pair.odd, right);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) scores[i] = vaddvq_f32(vaddq_f32(even[i], odd[i]));
}

bool dots_of_bf16(const FewRows& job, const std::byte* q, float* scores) {
  const auto* query = reinterpret_cast<const float*>(q);
  std::int64_t i = 0;
  for (; i + kTogether <= job.keys; i += kTogether)
    dots_bf16<kTogether>(job.rows + i * job.pitch, job.pitch, job.size, query, scores + i);
  for (; i < job.keys; ++i)
    dots_bf16<1>(job.rows + i * job.pitch, job.pitch, job.size, query, scores + i);
  return true;
}

template <int kEights>
[[gnu::always_inline]] inline void weigh_bf16(const FewRows& job, std::int64_t col,
                                              const float* weights, float* sums) {
  float32x4_t even[kEights], odd[kEights];
#pragma GCC unroll 8
  for (int j = 0; j < kEights; ++j) {
    const float32x4x2_t before = vld2q_f32(sums + col + 8 * j);
    even[j] = before.val[0];
    odd[j] = before.val[1];
  }
  for (std::int64_t i = 0; i < job.keys; ++i) {
    const float32x4_t weight = vld1q_dup_f32(weights + i);
    const std::byte* row = job.rows + i * job.pitch + 2 * col;
    __builtin_prefetch(row + 4 * job.pitch);
#pragma GCC unroll 8
    for (int j = 0; j < kEights; ++j) {
      const Pairs pair(row + 16 * j);
      even[j] = vfmaq_f32(even[j], pair.even, weight);
      odd[j] = vfmaq_f32(odd[j], pair.odd, weight);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kEights; ++j) vst2q_f32(sums + col + 8 * j, {{even[j], odd[j]}});
}

bool weigh_of_bf16(const FewRows& job, const std::byte* weights, float, float* sums) {
  const auto* weight = reinterpret_cast<const float*>(weights);
  std::int64_t col = 0;
  for (; col + 64 <= job.size; col += 64) weigh_bf16<8>(job, col, weight, sums);
  for (; col < job.size; col += 8) weigh_bf16<1>(job, col, weight, sums);
  return true;
}

// Even and odd ones of every eight apart.
void lay_pairs(const float* q, std::int64_t size, std::byte* laid) {
  auto* to = reinterpret_cast<float*>(laid);
  for (std::int64_t d = 0; d < size; d += 8)
    for (int i = 0; i < 4; ++i) {
      to[d + i] = q[d + 2 * i];
      to[d + 4 + i] = q[d + 2 * i + 1];
    }
}
void lay_halves(const float* q, std::int64_t size, std::byte* laid) {
  neon_fp16_narrow(q, laid, size);
}

constexpr FewKernels kE4m3{dots_of_e4m3, weigh_of_e4m3, lay_halves, true};
constexpr FewKernels kBf16{dots_of_bf16, weigh_of_bf16, lay_pairs, false};

}  // namespace

const FewKernels* neon_fp16_few(const GemmOperand& operand) {
  const Matrix& elements = operand.elements();
  if (!operand.is_quantized())
    return elements.dtype == DType::bf16 && elements.col_stride == 2 ? &kBf16 : nullptr;
  const bool per_row = tile_extent(operand.quantized.tile.cols, elements.cols) == elements.cols;
  return elements.format == e4m3fn && elements.col_stride == 1 && per_row ? &kE4m3 : nullptr;
}

}  // namespace octavo::cpu
