// Packing of e4m3 codes into f16 panels for attention, in registers (attention_codes.h).
#include "octavo/backend/cpu/attention/attention_codes.h"

#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon_fp16/e4m3_halves.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"
#include "octavo/backend/cpu/isa/neon_fp16/transpose_eight.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

float row_squares(const std::byte* codes, std::int64_t n) {
  float16x8_t low = vdupq_n_f16(0), high = vdupq_n_f16(0);
  uint8x16_t most = vdupq_n_u8(0);
  for (std::int64_t d = 0; d < n; d += 16) {
    const uint8x16_t code = load_codes(codes + d);
    const E4m3Halves half(code);
    most = vmaxq_u8(most, fields_of(code));
    low = vfmaq_f16(low, half.low, half.low);
    high = vfmaq_f16(high, half.high, half.high);
  }
  if (vmaxvq_u8(most) >= kNanField) return -1.0F;
  return vaddvq_f32(vaddq_f32(pairwise_sum(low), pairwise_sum(high)));
}

bool interleave(const std::byte* const* rows, const float* factors, int count, std::int64_t n,
                std::uint16_t* panel) {
  uint8x16_t most = vdupq_n_u8(0);
  for (int r = 0; r < count; r += 8) {
    const float16x8_t factor =
        vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(factors + r)), vld1q_f32(factors + r + 4));
    float16_t each[8];
    vst1q_f16(each, factor);
    for (std::int64_t d = 0; d < n; d += 16) {
      uint16x8_t low[8], high[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const uint8x16_t code = load_codes(rows[r + i] + d);
        const E4m3Halves half(code);
        most = vmaxq_u8(most, fields_of(code));
        const float16x8_t times = vld1q_dup_f16(each + i);
        low[i] = vreinterpretq_u16_f16(vmulq_f16(half.low, times));
        high[i] = vreinterpretq_u16_f16(vmulq_f16(half.high, times));
      }
      store_transposed(low, panel + d * count + r, count);
      store_transposed(high, panel + (d + 8) * count + r, count);
    }
  }
  return vmaxvq_u8(most) < kNanField;
}

bool spread(const CodeKernels::Values& values) {
  constexpr int kLanes = 8;
  uint8x16_t most = vdupq_n_u8(0);
  for (std::int64_t e = 0; e < values.size; e += 2 * kLanes) {
    auto* first = reinterpret_cast<float16_t*>(values.to + e / kLanes * values.panel);
    auto* second = reinterpret_cast<float16_t*>(values.to + (e / kLanes + 1) * values.panel);
    float16x8_t left = vdupq_n_f16(0), right = left;
    if (values.channel_factors != nullptr) {
      const float* from = values.channel_factors + e;
      left = vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(from)), vld1q_f32(from + 4));
      right = vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(from + 8)), vld1q_f32(from + 12));
    }
    const std::byte* row = values.rows + e;
    for (std::int64_t key = 0; key < values.keys; ++key, row += values.pitch) {
      const uint8x16_t code = load_codes(row);
      const E4m3Halves half(code);
      most = vmaxq_u8(most, fields_of(code));
      if (values.row_factors != nullptr)
        left = right = vdupq_n_f16(static_cast<float16_t>(values.row_factors[key]));
      vst1q_f16(first + key * kLanes, vmulq_f16(half.low, left));
      vst1q_f16(second + key * kLanes, vmulq_f16(half.high, right));
    }
  }
  return vmaxvq_u8(most) < kNanField;
}

}  // namespace

const CodeKernels kNeonFp16Codes{
    .row_squares = row_squares, .interleave = interleave, .spread = spread};

}  // namespace octavo::cpu
