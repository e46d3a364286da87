// MX blocks of a row over f32 lanes: 32 values with an e8m0 scale.
#pragma once

#include "octavo/backend/cpu/isa/avx2/quantize_row.h"
#include "octavo/format/decode.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMxBlockSize = 32;

// From the amax of a block to its scale byte and to the factor, a power of two.
struct MxScales {
  std::int32_t emax;        // exponent of the largest value
  std::uint32_t bump_from;  // mantissas of the amax from here on take the next scale

  explicit MxScales(const MxBlocks& blocks) {
    const Format& format = blocks.format;
    const Binade top = binade_of(static_cast<float>(max_value(format)));
    emax = top.exponent;
    const std::uint32_t none = 1u << 23;
    bump_from = blocks.rule == ScaleRule::rceil  ? top.mantissa + 1
                : blocks.rule == ScaleRule::ceil ? 1
                : blocks.rule == ScaleRule::even ? none - (1u << (22 - format.mantissa_bits))
                                                 : none;
  }

  // An amax whose exponent field is 0 comes out as byte 0 by itself: every emax is at least 1.
  template <typename L>
  [[gnu::always_inline]] TileScales<L> of(typename L::Bits amax) const {
    const auto mantissa = L::band(amax, L::splat(0x7FFFFFu));
    const auto bump = L::keep(L::above(mantissa, L::splat(bump_from - 1)), L::splat(1));
    auto byte = L::sub(L::shift_right(amax, 23), L::splat(static_cast<std::uint32_t>(emax)));
    byte = L::max_signed(L::add(byte, bump), L::splat(0));
    // 2^(127 - byte): its exponent field is 254 - byte, and 2^-127 (byte 254) is subnormal.
    const auto field = L::sub(L::splat(254), byte);
    const auto normal = L::shift_left(field, 23);
    const auto bad = L::above(amax, L::splat(kF32Inf - 1));
    return {.factor = L::select(L::equal(field, L::splat(0)), L::splat(0x00400000u), normal),
            .code = L::select(bad, L::splat(0xFF), byte),
            .poisoned = L::keep(bad, L::splat(0xFFFFFFFFu))};
  }
};

// The constants of a call.
template <typename L>
struct MxConstants {
  EncodeConstants<L> encode;
  MxScales scales;
  typename L::Bits poison;

  explicit MxConstants(const MxBlocks& blocks)
      : encode(encoder(blocks)), scales(blocks), poison(L::splat_bytes(blocks.poison_code)) {}

 private:
  static Encoder encoder(const MxBlocks& blocks) {
    Encoder encoder = make_encoder(blocks.format, {}, DType::f32);
    encoder.only_finite = true;
    return encoder;
  }
};

template <typename L, DType kSource, bool kNibbles>
[[gnu::always_inline]] inline void mx_row(const MxConstants<L>& k, const void* values,
                                          std::uint8_t* codes, std::uint8_t* scales,
                                          std::int64_t n) {
  const auto scale = [&](typename L::Bits amax) __attribute__((always_inline)) {
    return k.scales.template of<L>(amax);
  };
  quantize_row<L, kSource, kMxBlockSize, kNibbles>(k.encode, k.poison, scale, values, codes, scales,
                                                   n);
}

template <typename L, DType kSource, bool kNibbles>
void mx_rows(const MxBlocks& blocks, const void* values, std::uint8_t* codes, std::uint8_t* scales,
             std::int64_t n) {
  const FpEnvGuard guard;
  const MxConstants<L> k(blocks);
  mx_row<L, kSource, kNibbles>(k, values, codes, scales, n);
}

}  // namespace
}  // namespace octavo::cpu
