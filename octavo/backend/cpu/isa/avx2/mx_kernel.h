// MX blocks of a row over f32 lanes: 32 values with an e8m0 scale.
#pragma once

#include "octavo/backend/cpu/isa/avx2/fp4_search_kernel.h"
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
  std::uint32_t try_from;   // or, in a search, may take it

  explicit MxScales(const MxBlocks& blocks) {
    const Format& format = blocks.format;
    const ScaleRule rule = blocks.searches ? ScaleRule::floor : blocks.rule;
    try_from = fit_next_power_from(format);
    const Binade top = binade_of(static_cast<float>(max_value(format)));
    emax = top.exponent;
    const std::uint32_t none = 1u << 23;
    bump_from = rule == ScaleRule::rceil  ? top.mantissa + 1
                : rule == ScaleRule::ceil ? 1
                : rule == ScaleRule::even ? none - (1u << (22 - format.mantissa_bits))
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

  // Policy mse, for E2M1: the power at or below the amax, or the next.
  template <typename L, DType kSource>
  [[gnu::always_inline]] TileScales<L> searched(const std::byte* from,
                                                typename L::Bits amax) const {
    TileScales<L> made = of<L>(amax);
    // Where both would be byte 0 there is one candidate.
    const std::uint32_t tried =
        L::mask_bits(L::above(L::band(amax, L::splat(0x7FFFFFu)), L::splat(try_from - 1))) &
        L::mask_bits(
            L::above(L::shift_right(amax, 23), L::splat(static_cast<std::uint32_t>(emax) - 1))) &
        ~L::mask_bits(L::above(amax, L::splat(kF32Inf - 1)));
    if (tried == 0) return made;
    const auto next = L::mask_of(fp4_next_powers<L, kSource>(from, tried, made.factor));
    const auto half = L::splat(std::bit_cast<std::uint32_t>(0.5F));
    made.factor = L::select(next, L::fmul(made.factor, half), made.factor);
    made.code = L::select(next, L::add(made.code, L::splat(1)), made.code);
    return made;
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
  const auto scale = [&](const std::byte*, typename L::Bits amax) __attribute__((always_inline)) {
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

template <typename L, DType kSource, bool kNibbles>
void mx_ranked_rows(const MxBlocks& blocks, const void* values, std::uint8_t* codes,
                    std::uint8_t* scales, std::int64_t n) {
  const FpEnvGuard guard;
  const MxConstants<L> k(blocks);
  const std::uint32_t* ranked = blocks.ranked;
  // Called for one batch of blocks after the other.
  const auto scale = [&](const std::byte*, typename L::Bits amax) __attribute__((always_inline)) {
    const auto rank = L::load_words(ranked);
    ranked += L::kLanes;
    const auto taken = L::select(L::equal(rank, L::splat(0)), amax, rank);
    return k.scales.template of<L>(L::select(L::above(amax, L::splat(kF32Inf - 1)), amax, taken));
  };
  quantize_row<L, kSource, kMxBlockSize, kNibbles>(k.encode, k.poison, scale, values, codes, scales,
                                                   n);
}

template <typename L, DType kSource, bool kNibbles>
void mx_searched_rows(const MxBlocks& blocks, const void* values, std::uint8_t* codes,
                      std::uint8_t* scales, std::int64_t n) {
  const FpEnvGuard guard;
  const MxConstants<L> k(blocks);
  const auto scale = [&](const std::byte* from, typename L::Bits amax)
      __attribute__((always_inline)) {
    return k.scales.template searched<L, kSource>(from, amax);
  };
  quantize_row<L, kSource, kMxBlockSize, kNibbles>(k.encode, k.poison, scale, values, codes, scales,
                                                   n);
}

}  // namespace
}  // namespace octavo::cpu
