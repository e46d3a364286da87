// Packing of 8-bit codes into f16 panels, times a power of two. Bytes of eight rows are transposed
// before they are decoded, while they are smallest: each eight that result are eight rows at one k.
// About one operation for a code.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

struct E4m3 {
  // Shifted left by seven a code is an f16 of 2^-8 of its value, except for one bit that its sign
  // has been copied to. NaN, which would read as 480, is made NaN by setting all bits of its
  // exponent.
  static constexpr float kUnit = 0x1p+8F;
  [[gnu::always_inline]] static void widen(uint8x16_t codes, uint16x8_t (&out)[2]) {
    const uint8x16_t field = vdupq_n_u8(0x7F);
    const int8x16_t code = vreinterpretq_s8_u8(codes),
                    nan = vreinterpretq_s8_u8(vceqq_u8(vandq_u8(codes, field), field));
    const uint16x8_t keep = vdupq_n_u16(0xBFFF);
    const auto joined = [&](int16x8_t half, int16x8_t bits) {
      return vorrq_u16(vandq_u16(vreinterpretq_u16_s16(half), keep), vreinterpretq_u16_s16(bits));
    };
    out[0] = joined(vshll_n_s8(vget_low_s8(code), 7), vshll_n_s8(vget_low_s8(nan), 7));
    out[1] = joined(vshll_high_n_s8(code, 7), vshll_high_n_s8(nan, 7));
  }
};

struct E5m2 {  // the upper half of an f16
  static constexpr float kUnit = 1.0F;
  [[gnu::always_inline]] static void widen(uint8x16_t codes, uint16x8_t (&out)[2]) {
    const uint8x16_t zero = vdupq_n_u8(0);
    out[0] = vreinterpretq_u16_u8(vzip1q_u8(zero, codes));
    out[1] = vreinterpretq_u16_u8(vzip2q_u8(zero, codes));
  }
};

// Sixteen codes of eight rows.
template <typename Coding>
[[gnu::always_inline]] inline void pack_eight(const std::uint8_t* const* rows, std::int64_t k,
                                              float16x8_t factor, float16_t* to,
                                              std::int64_t pitch) {
  uint8x16_t at[8], pairs[8], fours[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) at[i] = vld1q_u8(rows[i] + k);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = vzip1q_u8(at[i], at[i + 4]);
    pairs[2 * i + 1] = vzip2q_u8(at[i], at[i + 4]);
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half)
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      fours[4 * half + 2 * i] = vzip1q_u8(pairs[2 * i + half], pairs[2 * i + 4 + half]);
      fours[4 * half + 2 * i + 1] = vzip2q_u8(pairs[2 * i + half], pairs[2 * i + 4 + half]);
    }
    // fours[4 * half + q] has rows 0, 2, 4, 6 and fours[4 * half + 2 + q] the others, at four k
    // each.
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const uint8x16_t even = fours[q / 2 * 4 + q % 2], odd = fours[q / 2 * 4 + 2 + q % 2];
    const uint8x16_t transposed[2] = {vzip1q_u8(even, odd), vzip2q_u8(even, odd)};
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      uint16x8_t halves[2];
      Coding::widen(transposed[part], halves);
      float16_t* const line = to + (4 * q + 2 * part) * pitch;
      vst1q_f16(line, vmulq_f16(vreinterpretq_f16_u16(halves[0]), factor));
      vst1q_f16(line + pitch, vmulq_f16(vreinterpretq_f16_u16(halves[1]), factor));
    }
  }
}

template <typename Coding>
void pack(const Format&, const PackJob& job) {
  const float16x8_t factor = vdupq_n_f16(static_cast<float16_t>(Coding::kUnit * job.factor));
  auto* const panel = reinterpret_cast<float16_t*>(job.panel);
  for (std::int64_t k = 0; k < job.n; k += 16)
    for (int r = 0; r < job.count; r += 8)
      pack_eight<Coding>(job.rows + r, k, factor, panel + k * job.count + r, job.count);
}

}  // namespace

PackCodes neon_fp16_pack_codes(const PackedCodes& codes) {
  if (codes.nibbles) return nullptr;
  if (codes.format == e4m3fn) return pack<E4m3>;
  if (codes.format == e5m2) return pack<E5m2>;
  return nullptr;
}

}  // namespace octavo::cpu
