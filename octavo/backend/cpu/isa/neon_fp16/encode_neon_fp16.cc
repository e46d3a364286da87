// Encoding in f16 lanes. Two sources:
//   f16 itself, and
//   f32 or f64 squeezed to a bf16 with round-to-odd, or bf16 as it is, with the exponent moved to
//   f16's. What lies below 2^-14 comes out wrong but below 2^-14, where the formats that fit have
//   less than half of their smallest step: nearest modes give zero, and the directed ones only need
//   to see that it is not zero.
#include "octavo/backend/cpu/isa/neon/choose_encode.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"
#include "octavo/backend/cpu/isa/portable/portable.h"

namespace octavo::cpu {
namespace {

struct F16Lanes {
  using Bits = uint16x8_t;
  using Word = std::uint16_t;
  static constexpr int kMantissa = 10, kBias = 15, kVectors = 2;
  static constexpr Word kExponent = 0x7C00u, kMagnitude = 0x7FFFu;

  static Bits splat(Word w) { return vdupq_n_u16(w); }
  static Bits band(Bits a, Bits b) { return vandq_u16(a, b); }
  static Bits bor(Bits a, Bits b) { return vorrq_u16(a, b); }
  static Bits bic(Bits a, Bits b) { return vbicq_u16(a, b); }
  static Bits select(Bits mask, Bits a, Bits b) { return vbslq_u16(mask, a, b); }
  static Bits add(Bits a, Bits b) { return vaddq_u16(a, b); }
  static Bits sub(Bits a, Bits b) { return vsubq_u16(a, b); }
  static Bits min(Bits a, Bits b) { return vminq_u16(a, b); }
  static Bits max(Bits a, Bits b) { return vmaxq_u16(a, b); }
  static Bits above(Bits a, Bits b) { return vcgtq_u16(a, b); }
  static Bits equal(Bits a, Bits b) { return vceqq_u16(a, b); }
  static Bits sign_mask(Bits a) {
    return vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(a), 15));
  }
  static Bits fadd(Bits a, Bits b) {
    return vreinterpretq_u16_f16(vaddq_f16(vreinterpretq_f16_u16(a), vreinterpretq_f16_u16(b)));
  }
  static Bits fsub(Bits a, Bits b) {
    return vreinterpretq_u16_f16(vsubq_f16(vreinterpretq_f16_u16(a), vreinterpretq_f16_u16(b)));
  }
  static Bits fequal(Bits a, Bits b) {
    return vceqq_f16(vreinterpretq_f16_u16(a), vreinterpretq_f16_u16(b));
  }
  static uint8x16_t low_bytes(const Bits v[kVectors]) {
    return vuzp1q_u8(vreinterpretq_u8_u16(v[0]), vreinterpretq_u8_u16(v[1]));
  }
  static uint8x16_t top_bytes(const Bits v[kVectors]) {
    return vuzp2q_u8(vreinterpretq_u8_u16(v[0]), vreinterpretq_u8_u16(v[1]));
  }
  // The exponent of powers of two, times 2^mantissa_bits, modulo 256. It stands at bit 2 of the top
  // bytes.
  static uint8x16_t binade_bytes(const Bits v[kVectors], int mantissa_bits) {
    return vshlq_u8(top_bytes(v), vdupq_n_s8(static_cast<std::int8_t>(mantissa_bits - 2)));
  }
};

struct F16Source {
  using Lanes = F16Lanes;
  static constexpr std::uint16_t kInf = 0x7C00;
  static constexpr int kExactBits = 10;

  static std::uint16_t magnitude_word(double magnitude) {
    return __builtin_bit_cast(std::uint16_t, static_cast<__fp16>(static_cast<float>(magnitude)));
  }
  template <Rounding>
  static uint16x8_t to_lane(uint16x8_t magnitude) {
    return magnitude;
  }
  [[gnu::always_inline]] static void load(const std::byte* from, uint16x8_t raw[2]) {
    const auto* p = reinterpret_cast<const std::uint16_t*>(from);
    raw[0] = vld1q_u16(p);
    raw[1] = vld1q_u16(p + 8);
  }
};

template <DType kSource>
struct SqueezedSource {
  using Lanes = F16Lanes;
  static constexpr std::uint16_t kInf = 0x7F80;
  static constexpr int kExactBits = 7;

  static std::uint16_t magnitude_word(double magnitude) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(magnitude)) >>
                                      16);
  }

  template <Rounding kRounding>
  static uint16x8_t to_lane(uint16x8_t magnitude) {
    constexpr std::uint16_t kRebias = (127 - 15) << 7;
    const uint16x8_t lane = vshlq_n_u16(vqsubq_u16(magnitude, vdupq_n_u16(kRebias)), 3);
    constexpr bool kDirected =
        kRounding == Rounding::up || kRounding == Rounding::down || kRounding == Rounding::to_odd;
    if constexpr (kDirected) return vmaxq_u16(lane, vminq_u16(magnitude, vdupq_n_u16(1)));
    return lane;
  }

  [[gnu::always_inline]] static void load(const std::byte* from, uint16x8_t raw[2]) {
    load_bfloat<kSource>(from, raw);
  }
  [[gnu::always_inline]] static void load_scaled(const std::byte* from, float32x4_t factor,
                                                 uint16x8_t raw[2]) {
    uint32x4_t wide[4];
    F32Source<kSource>::load_scaled(from, factor, wide);
    squeeze(wide, raw);
  }
};

EncodeSpan fp16_encode(const Encoder& encoder) {
  EncodeSpan chosen = neon_fp16_encode_e5m2(encoder);
  if (chosen != nullptr) return chosen;
  switch (encoder.source) {
    case DType::f32:
      chosen = choose_encode<SqueezedSource<DType::f32>>(encoder);
      break;
    case DType::f64:
      chosen = choose_encode<SqueezedSource<DType::f64>>(encoder);
      break;
    case DType::bf16:
      chosen = choose_encode<SqueezedSource<DType::bf16>>(encoder);
      break;
    case DType::f16:
      chosen = choose_encode<F16Source>(encoder);
      break;
    case DType::code:
      break;
  }
  return chosen != nullptr ? chosen : neon_encode(encoder);
}

ScaledSpan fp16_encode_scaled(const Encoder& encoder) {
  ScaledSpan chosen = neon_fp16_encode_scaled_e4m3(encoder);
  if (chosen != nullptr) return chosen;
  switch (encoder.source) {
    case DType::f32:
      chosen = choose_scaled<SqueezedSource<DType::f32>>(encoder);
      break;
    case DType::f16:
      chosen = choose_scaled<SqueezedSource<DType::f16>>(encoder);
      break;
    case DType::bf16:
      chosen = choose_scaled<SqueezedSource<DType::bf16>>(encoder);
      break;
    case DType::f64:
    case DType::code:
      break;
  }
  return chosen != nullptr ? chosen : neon_encode_scaled(encoder);
}

MxKernels fp16_mx(const MxBlocks& blocks) {
  MxKernels kernels = neon_mx(blocks);
  if (const MxRows rows = neon_fp16_mx_rows(blocks)) kernels.rows = rows;
  if (const MxRows rows = neon_fp16_mx_rows_e4m3(blocks)) kernels.rows = rows;
  if (const MxPanelSpan panel = neon_fp16_mx_panel(blocks)) kernels.panel = panel;
  if (const MxPanelSpan panel = neon_fp16_mx_panel_e4m3(blocks)) kernels.panel = panel;
  return kernels;
}

}  // namespace

const Isa kNeonFp16Isa{.encode = fp16_encode,
                       .decode = neon_decode,
                       .count = neon_count,
                       .encode_scaled = fp16_encode_scaled,
                       .mx = fp16_mx,
                       .amax16 = neon_amax16,
                       .fp4 = neon_fp4,
                       .fp4_searches = true,
                       .decode_scaled = neon_decode_scaled,
                       .rank = neon_rank,
                       .fp4_squares = neon_fp4_squares,
                       .row_error = neon_row_error,
                       .row_error_reads_codes = true,
                       .products = &kPortableProducts};
const Kernels kNeonFp16Kernels = make_kernels<kNeonFp16Isa, neon_fp16_gemm, neon_fp16_attention>(
    "cpu/neon_fp16", "NEON with half-precision arithmetic");

}  // namespace octavo::cpu
