// MX quantization of bf16, eight blocks of a row at a time: amaxes and staged magnitudes first;
// then all scales at once; then codes. 20 operations for sixteen bf16, and 3 for the scales.
#pragma once

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/isa/neon/lanes.h"
#include "octavo/format/decode.h"
#include "octavo/scale/tile_scale.h"

#include <arm_neon.h>
#include <cstring>

namespace octavo::cpu {
namespace {

// MX quantization of bf16 in 16-bit lanes.
//
// Doubled, a bf16 has lost its sign and its exponent stands in the upper byte: amaxes are found,
// scales made and (powers of two as they are) taken off the exponents by integer operations, at
// eight elements each. What is left, moved to where f16 has its exponent, is an f16; times a power
// of two its exponent field is the code's, subnormal numbers included, and an integer rounding to
// even drops the rest of the mantissa.
//
// Nothing is rounded twice: the multiplication rounds up (FPCR) and only results below f16's
// smallest normal number. Seven mantissa bits are exact there down to the format's smallest step;
// below it the only tie is half of that step, itself exact, and what lies above it stays above.
//
// Tiny blocks: with a scale byte below 15 nothing is taken off the exponents, which f16 can hold as
// they are (subnormal numbers too: f16 has them alike), and the factor makes up for it. In all
// other blocks what bf16 has below its normal numbers lies far below half of a step.
constexpr std::int32_t kF16Bias = 15;

// Mantissa bits of the format, whether it has eight bits, and whether values beyond the largest are
// to be expected: rules that round scales up have none.
template <int kMantissa, bool kEightBits, bool kOverflows>
struct MxElement {
  static constexpr int kDrop = 10 - kMantissa;  // of an f16's
  static constexpr bool kFull = kEightBits, kClamp = kOverflows;
};

struct MxConstants {
  uint16x8_t bump;      // carries into the exponent where the amax takes the next scale
  uint16x8_t emax;      // exponent of the largest value
  uint16x8_t own_bias;  // as an f16 exponent
  uint16x8_t last_bit;  // of a field in an f16
  uint16x8_t max_lane;  // the largest field there
  uint16x8_t ties, poisoned_ties;
  uint16x8_t sign;  // twice in a lane
  int8x16_t sign_shift;

  explicit MxConstants(const MxBlocks& blocks) {
    const Format& format = blocks.format;
    const Binade top = binade_of(static_cast<float>(max_value(format)));
    // The mantissa of a doubled bf16 has eight bits, the last of them zero.
    const std::uint32_t top_mantissa = top.mantissa >> 15;
    const std::uint32_t bump_from = blocks.rule == ScaleRule::rceil  ? top_mantissa + 1
                                    : blocks.rule == ScaleRule::ceil ? 1
                                    : blocks.rule == ScaleRule::even
                                        ? 256u - (1u << (7 - format.mantissa_bits))
                                        : 256u;
    const int drop = 10 - format.mantissa_bits;
    const auto lanes = [](std::uint32_t word) {
      return vdupq_n_u16(static_cast<std::uint16_t>(word));
    };
    bump = lanes(256u - bump_from);
    emax = lanes(static_cast<std::uint32_t>(top.exponent));
    own_bias = lanes(static_cast<std::uint32_t>(format.bias) << 10);
    last_bit = lanes(1u << drop);
    max_lane = lanes(format.max_field() << drop);
    // Where 8 bits are to be dropped or 9, fields are not doubled.
    const int point = drop == 7 ? 8 : drop;
    const std::uint32_t half_down = (1u << (point - 1)) - 1;
    ties = lanes(half_down);
    poisoned_ties = lanes(half_down + (std::uint32_t{blocks.poison_code} << point));
    sign = lanes(format.sign_mask() * 0x101u);
    sign_shift = vdupq_n_s8(static_cast<std::int8_t>(format.bits() - 8));
  }
};

// Sixteen values, without their signs and doubled; and bytes whose top bits are the signs.
struct MxGroup {
  uint16x8_t lanes[2];
  uint8x16_t tops;
};

[[gnu::always_inline]] inline MxGroup mx_group(const std::byte* from) {
  uint16x8_t raw[2];
  load_bfloat<DType::bf16>(from, raw);
  return {{vaddq_u16(raw[0], raw[0]), vaddq_u16(raw[1], raw[1])},
          vuzp2q_u8(vreinterpretq_u8_u16(raw[0]), vreinterpretq_u8_u16(raw[1]))};
}

// The scaling of values: of eight blocks, or of one block eight times.
struct MxScales {
  uint16x8_t taken_off;  // exponents; all of it where the block is poisoned
  uint16x8_t factor;     // an f16
  uint16x8_t ties;       // what is added to round half down; and the code of a poisoned block
  uint16x8_t sign;       // as bytes: the bit that the sign goes to
};

// From amaxes in the form of a group; `byte` is the stored scale.
[[gnu::always_inline]] inline MxScales scales_of(const MxConstants& k, uint16x8_t amax,
                                                 uint8x8_t& stored) {
  const uint16x8_t bias = vdupq_n_u16(kF16Bias);
  const uint16x8_t poisoned = vcgeq_u16(amax, vdupq_n_u16(0xFF00));
  const uint16x8_t byte = vqsubq_u16(vshrq_n_u16(vqaddq_u16(amax, k.bump), 8), k.emax);
  stored = vmovn_u16(vorrq_u16(byte, poisoned));
  return {.taken_off = vorrq_u16(vshlq_n_u16(vqsubq_u16(byte, bias), 8), poisoned),
          .factor = vaddq_u16(k.own_bias, vshlq_n_u16(vqsubq_u16(bias, byte), 10)),
          .ties = vbslq_u16(poisoned, k.poisoned_ties, k.ties),
          .sign = vbicq_u16(k.sign, poisoned)};
}

// Codes of several groups, step by step for all of them: the core's reorder window is too short to
// interleave them itself. Scales are those of each vector of eight.
template <typename Element, int kGroups>
[[gnu::always_inline]] inline void mx_codes(const MxConstants& k, const MxGroup* groups,
                                            const MxScales* scales, uint8x16_t* codes) {
  constexpr int kVectors = 2 * kGroups;
  uint16x8_t lane[kVectors], odd[kVectors];
  for (int v = 0; v < kVectors; ++v)
    lane[v] = vqsubq_u16(groups[v / 2].lanes[v % 2], scales[v].taken_off);
  for (int v = 0; v < kVectors; ++v) lane[v] = vshlq_n_u16(lane[v], 2);
  for (int v = 0; v < kVectors; ++v)
    lane[v] = vreinterpretq_u16_f16(
        vmulq_f16(vreinterpretq_f16_u16(lane[v]), vreinterpretq_f16_u16(scales[v].factor)));
  if constexpr (Element::kClamp)
    for (int v = 0; v < kVectors; ++v) lane[v] = vminq_u16(lane[v], k.max_lane);
  // Half down, one more where the field is odd.
  for (int v = 0; v < kVectors; ++v) odd[v] = vtstq_u16(lane[v], k.last_bit);
  for (int v = 0; v < kVectors; ++v) odd[v] = vsubq_u16(lane[v], odd[v]);
  // Dropping eight bits is cheaper than dropping seven: so two of the same are added up.
  if constexpr (Element::kDrop == 7) {
    for (int v = 0; v < kVectors; ++v) lane[v] = vaddq_u16(lane[v], scales[v].ties);
  } else {
    for (int v = 0; v < kVectors; ++v) lane[v] = scales[v].ties;
  }
  for (int g = 0; g < kGroups; ++g) {
    const uint16x8_t *a = lane + 2 * g, *b = odd + 2 * g;
    codes[g] = vaddhn_high_u16(vaddhn_u16(a[0], b[0]), a[1], b[1]);
    if constexpr (Element::kDrop == 9) codes[g] = vshrq_n_u8(codes[g], 1);
  }
  for (int g = 0; g < kGroups; ++g) {
    uint8x16_t tops = groups[g].tops;
    if constexpr (!Element::kFull) tops = vshlq_u8(tops, k.sign_shift);
    codes[g] = vbslq_u8(vreinterpretq_u8_u16(scales[2 * g].sign), tops, codes[g]);
  }
}

// Calls visit with the MxElement of blocks that fit.
template <int kMantissa, bool kEightBits, typename Visit>
auto visit_mx_rule(ScaleRule rule, Visit&& visit) {
  const bool up = rule == ScaleRule::rceil || rule == ScaleRule::ceil;
  return up ? visit(MxElement<kMantissa, kEightBits, false>{})
            : visit(MxElement<kMantissa, kEightBits, true>{});
}
template <typename Visit>
auto visit_mx_element(const MxBlocks& blocks, Visit&& visit) {
  const bool full = blocks.format.bits() == 8;
  if (blocks.format.mantissa_bits == 1) return visit_mx_rule<1, false>(blocks.rule, visit);
  if (blocks.format.mantissa_bits == 2)
    return full ? visit_mx_rule<2, true>(blocks.rule, visit)
                : visit_mx_rule<2, false>(blocks.rule, visit);
  return full ? visit_mx_rule<3, true>(blocks.rule, visit)
              : visit_mx_rule<3, false>(blocks.rule, visit);
}

// Whether 16-bit lanes can encode blocks of this format: both signs alike, Inf or NaN above the
// largest value, half of the smallest step and twice the largest value within f16. Eight bits with
// one of mantissa would not.
inline bool mx_lanes_fit(const MxBlocks& blocks) {
  const Format& format = blocks.format;
  const int emax = binade_of(static_cast<float>(max_value(format))).exponent;
  return blocks.source == DType::bf16 && format.is_signed && !format.twos_complement &&
         format.has_negative_zero() && format.bits() <= 8 && format.bias >= 1 &&
         format.bias + format.mantissa_bits < kF16Bias && emax >= 1 && emax < kF16Bias &&
         format.mantissa_bits >= (format.bits() == 8 ? 2 : 1) && format.mantissa_bits <= 3;
}

constexpr std::int64_t kBatch = 8;  // blocks
constexpr std::int64_t kBatchSize = kBatch * kMxBlock;
constexpr std::int64_t kBfloatBytes = element_bytes(DType::bf16);

// A staged batch in memory, between its first and its second read.
struct BatchLanes {
  std::uint16_t* lanes;
  std::uint8_t* tops;

  [[nodiscard, gnu::always_inline]] MxGroup group(std::int64_t at) const {
    return {{vld1q_u16(lanes + at), vld1q_u16(lanes + at + 8)}, vld1q_u8(tops + at)};
  }
  [[gnu::always_inline]] void set(std::int64_t at, const MxGroup& group) const {
    vst1q_u16(lanes + at, group.lanes[0]);
    vst1q_u16(lanes + at + 8, group.lanes[1]);
    vst1q_u8(tops + at, group.tops);
  }
};

// Returns the amaxes.
[[gnu::always_inline]] inline uint16x8_t stage_batch(const std::byte* from, std::int64_t blocks,
                                                     const BatchLanes& batch) {
  uint16x8_t most[kBatch] = {};
  for (std::int64_t b = 0; b < blocks; ++b) {
    uint16x8_t larger[2];
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = b * kMxBlock + 16 * i;
      const MxGroup group = mx_group(from + at * kBfloatBytes);
      batch.set(at, group);
      larger[i] = vmaxq_u16(group.lanes[0], group.lanes[1]);
    }
    most[b] = vmaxq_u16(larger[0], larger[1]);
  }
  for (int step = kBatch / 2; step > 0; step /= 2)
    for (int b = 0; b < step; ++b) most[b] = vpmaxq_u16(most[2 * b], most[2 * b + 1]);
  return most[0];
}

// The scales of a batch, extracted one by one.
struct BatchScales {
  alignas(16) std::uint16_t taken_off[kBatch], factor[kBatch], ties[kBatch], sign[kBatch];

  explicit BatchScales(const MxScales& scales) {
    vst1q_u16(taken_off, scales.taken_off);
    vst1q_u16(factor, scales.factor);
    vst1q_u16(ties, scales.ties);
    vst1q_u16(sign, scales.sign);
  }
  [[nodiscard, gnu::always_inline]] MxScales of(std::int64_t block) const {
    return {vld1q_dup_u16(taken_off + block), vld1q_dup_u16(factor + block),
            vld1q_dup_u16(ties + block), vld1q_dup_u16(sign + block)};
  }
};

template <typename Element, int kBlocks>
[[gnu::always_inline]] inline void finish_blocks(const MxConstants& k, const BatchLanes& batch,
                                                 const BatchScales& made, std::int64_t first,
                                                 std::uint8_t* codes) {
  constexpr int kGroups = 2 * kBlocks;
  MxGroup groups[kGroups];
  MxScales scales[2 * kGroups];
  uint8x16_t out[kGroups];
  for (int b = 0; b < kBlocks; ++b) {
    const MxScales scale = made.of(first + b);
    for (int v = 0; v < 4; ++v) scales[4 * b + v] = scale;
  }
  for (int g = 0; g < kGroups; ++g) groups[g] = batch.group(first * kMxBlock + 16 * g);
  mx_codes<Element, kGroups>(k, groups, scales, out);
  for (int g = 0; g < kGroups; ++g) vst1q_u8(codes + first * kMxBlock + 16 * g, out[g]);
}

template <typename Element>
[[gnu::always_inline]] inline void finish_batch(const MxConstants& k, const BatchLanes& batch,
                                                uint16x8_t amax, std::int64_t blocks,
                                                std::uint8_t* codes, std::uint8_t* scales) {
  uint8x8_t stored;
  const BatchScales made(scales_of(k, amax, stored));
  std::uint8_t bytes[kBatch];
  vst1_u8(bytes, stored);
  std::memcpy(scales, bytes, static_cast<std::size_t>(blocks));
  std::int64_t b = 0;
  for (; b + 2 <= blocks; b += 2) finish_blocks<Element, 2>(k, batch, made, b, codes);
  if (b < blocks) finish_blocks<Element, 1>(k, batch, made, b, codes);
}

}  // namespace
}  // namespace octavo::cpu
