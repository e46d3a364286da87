// The SIMD lane widths (f32, f16) of the NEON encoder and the loads that fill them.
//
// F32 lanes take any source: 16-bit ones are widened exactly, f64 is narrowed with round-to-odd
// (FCVTXN), which keeps every later rounding exact as long as it drops at least two more bits. F16
// lanes convert twice as many elements per instruction: f32 is squeezed to a bf16 with
// round-to-odd, whose exponent is then moved to f16's.
//
// Everything here has internal linkage on purpose: these files are compiled once for plain NEON and
// once with half-precision arithmetic, and the linker must not mix the two.
#pragma once

#include <arm_neon.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "octavo/round/policy.h"
#include "octavo/tensor/dtype.h"

namespace octavo::cpu {
namespace {

struct F32Lanes {
  using Bits = uint32x4_t;
  using Word = std::uint32_t;
  static constexpr int kMantissa = 23, kBias = 127, kVectors = 4;  // vectors for 16 elements
  static constexpr Word kExponent = 0x7F800000u, kMagnitude = 0x7FFFFFFFu;

  static Bits splat(Word w) { return vdupq_n_u32(w); }
  static Bits band(Bits a, Bits b) { return vandq_u32(a, b); }
  static Bits bor(Bits a, Bits b) { return vorrq_u32(a, b); }
  static Bits bic(Bits a, Bits b) { return vbicq_u32(a, b); }
  static Bits select(Bits mask, Bits a, Bits b) { return vbslq_u32(mask, a, b); }
  static Bits add(Bits a, Bits b) { return vaddq_u32(a, b); }
  static Bits sub(Bits a, Bits b) { return vsubq_u32(a, b); }
  static Bits min(Bits a, Bits b) { return vminq_u32(a, b); }
  static Bits max(Bits a, Bits b) { return vmaxq_u32(a, b); }
  static Bits above(Bits a, Bits b) { return vcgtq_u32(a, b); }
  static Bits equal(Bits a, Bits b) { return vceqq_u32(a, b); }
  static Bits sign_mask(Bits a) {
    return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(a), 31));
  }
  static Bits fadd(Bits a, Bits b) {
    return vreinterpretq_u32_f32(vaddq_f32(vreinterpretq_f32_u32(a), vreinterpretq_f32_u32(b)));
  }
  static Bits fsub(Bits a, Bits b) {
    return vreinterpretq_u32_f32(vsubq_f32(vreinterpretq_f32_u32(a), vreinterpretq_f32_u32(b)));
  }
  static Bits fequal(Bits a, Bits b) {
    return vceqq_f32(vreinterpretq_f32_u32(a), vreinterpretq_f32_u32(b));
  }

  static uint8x16_t low_bytes(const Bits v[kVectors]) {
    const uint16x8_t a = vuzp1q_u16(vreinterpretq_u16_u32(v[0]), vreinterpretq_u16_u32(v[1]));
    const uint16x8_t b = vuzp1q_u16(vreinterpretq_u16_u32(v[2]), vreinterpretq_u16_u32(v[3]));
    return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
  }
  static uint8x16_t top_bytes(const Bits v[kVectors]) {
    const uint16x8_t a = vuzp2q_u16(vreinterpretq_u16_u32(v[0]), vreinterpretq_u16_u32(v[1]));
    const uint16x8_t b = vuzp2q_u16(vreinterpretq_u16_u32(v[2]), vreinterpretq_u16_u32(v[3]));
    return vuzp2q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
  }
  // The exponent of powers of two, times 2^mantissa_bits, modulo 256. It stands at bit 7 of the
  // upper halves.
  static uint8x16_t binade_bytes(const Bits v[kVectors], int mantissa_bits) {
    const int16x8_t shift = vdupq_n_s16(static_cast<std::int16_t>(mantissa_bits - 7));
    const uint16x8_t a = vuzp2q_u16(vreinterpretq_u16_u32(v[0]), vreinterpretq_u16_u32(v[1]));
    const uint16x8_t b = vuzp2q_u16(vreinterpretq_u16_u32(v[2]), vreinterpretq_u16_u32(v[3]));
    return vuzp1q_u8(vreinterpretq_u8_u16(vshlq_u16(a, shift)),
                     vreinterpretq_u8_u16(vshlq_u16(b, shift)));
  }
};

// Sixteen elements of a source as f32 bits. f32 represents every input exactly or rounded to odd.
template <DType kSource>
struct F32Source {
  using Lanes = F32Lanes;
  static constexpr F32Lanes::Word kInf = 0x7F800000u;
  // Mantissa bits that are exactly the source's; below them f64 has only a sticky (round-to-odd)
  // bit.
  static constexpr int kExactBits = kSource == DType::f64 ? 22 : 23;

  static F32Lanes::Word magnitude_word(double magnitude) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(magnitude));
  }
  template <Rounding>
  static F32Lanes::Bits to_lane(F32Lanes::Bits magnitude) {
    return magnitude;
  }

  [[gnu::always_inline]] static void load(const std::byte* from, F32Lanes::Bits raw[4]) {
    if constexpr (kSource == DType::f32) {
      const auto* p = reinterpret_cast<const std::uint32_t*>(from);
      for (int i = 0; i < 4; ++i) raw[i] = vld1q_u32(p + 4 * i);
    } else if constexpr (kSource == DType::bf16) {
      const auto* p = reinterpret_cast<const std::uint16_t*>(from);
      for (int i = 0; i < 2; ++i) {
        const uint16x8_t halves = vld1q_u16(p + 8 * i), zero = vdupq_n_u16(0);
        raw[2 * i] = vreinterpretq_u32_u16(vzip1q_u16(zero, halves));
        raw[2 * i + 1] = vreinterpretq_u32_u16(vzip2q_u16(zero, halves));
      }
    } else if constexpr (kSource == DType::f16) {
      const auto* p = reinterpret_cast<const std::uint16_t*>(from);
      for (int i = 0; i < 2; ++i) {
        const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p + 8 * i));
        raw[2 * i] = vreinterpretq_u32_f32(vcvt_f32_f16(vget_low_f16(halves)));
        raw[2 * i + 1] = vreinterpretq_u32_f32(vcvt_high_f32_f16(halves));
      }
    } else {
      const auto* p = reinterpret_cast<const double*>(from);
      for (int i = 0; i < 4; ++i) {
        const float32x2_t low = vcvtx_f32_f64(vld1q_f64(p + 4 * i));
        raw[i] = vreinterpretq_u32_f32(vcvtx_high_f32_f64(low, vld1q_f64(p + 4 * i + 2)));
      }
    }
  }
  // Times a factor, rounded to f32 as FPCR says; not for f64 sources.
  [[gnu::always_inline]] static void load_scaled(const std::byte* from, float32x4_t factor,
                                                 F32Lanes::Bits raw[4]) {
    load(from, raw);
    for (int i = 0; i < 4; ++i)
      raw[i] = vreinterpretq_u32_f32(vmulq_f32(vreinterpretq_f32_u32(raw[i]), factor));
  }
};

// Sixteen f32 as bf16, rounded to odd: the upper halves, with the last bit set where anything below
// them is not zero. Any later rounding to five mantissa bits or fewer is then exact.
[[gnu::always_inline]] inline void squeeze(const uint32x4_t wide[4], uint16x8_t raw[2]) {
  for (int i = 0; i < 2; ++i) {
    const uint16x8_t a = vreinterpretq_u16_u32(wide[2 * i]),
                     b = vreinterpretq_u16_u32(wide[2 * i + 1]);
    raw[i] = vorrq_u16(vuzp2q_u16(a, b), vminq_u16(vuzp1q_u16(a, b), vdupq_n_u16(1)));
  }
}

template <DType kSource>
[[gnu::always_inline]] inline void load_bfloat(const std::byte* from, uint16x8_t raw[2]) {
  if constexpr (kSource == DType::bf16) {
    const auto* p = reinterpret_cast<const std::uint16_t*>(from);
    raw[0] = vld1q_u16(p);
    raw[1] = vld1q_u16(p + 8);
  } else {
    uint32x4_t wide[4];
    F32Source<kSource>::load(from, wide);
    squeeze(wide, raw);
  }
}

}  // namespace
}  // namespace octavo::cpu
