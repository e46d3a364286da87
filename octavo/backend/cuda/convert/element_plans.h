// Encode and decode plans: the constants of the vectorized kernels' element functions
// (encode_element.cuh, decode_element.cuh), computed on the host.
#pragma once

#include <cstdint>

#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

enum class EncodeKind : std::uint8_t {
  // Rounding by an f32 sum, most formats:
  simple,           // zero and NaN keep their sign, nothing else is special
  one_nan,          // NaN has one code
  one_zero,         // and so has zero
  quick,            // any value may have a special code
  simple_integers,  // two's complement
  integers,         // with special codes
  shifts,  // by integer shifts: where the rounding sum would not be an f32, or for unsigned formats
  // Powers of two from 2^-127, which f32 has only as a subnormal:
  simple_e8m0,  // negative values become the smallest, as zero does
  e8m0,         // any policy
};

// Whether draws of stochastic rounding are added in f32. Otherwise they are integers.
constexpr bool draws_in_sums(EncodeKind kind) { return kind < EncodeKind::shifts; }

// Pairs are indexed by the sign. A policy's decisions are thresholds that no value reaches, or
// masks, so kernels do not branch on them.
struct EncodePlan {
  std::uint32_t limit[2];  // f32 bits that magnitudes are clamped to
  std::uint32_t inf_code[2], nan_code[2];
  std::uint32_t inf_flips, nan_flips;  // bits in which the codes of the two signs differ
  std::uint32_t min_field;             // exponent field, in f32, of the smallest normal number
  std::uint32_t shift;                 // 23 - mantissa bits
  std::uint32_t mantissa_bits;
  std::uint32_t sign_shift;           // right shift of bit 31 to the sign of a code
  std::uint32_t sign_bit, sign_down;  // that sign; factor that moves bits to it, >> 32
  std::uint32_t sign_below;           // distance of that sign from the top of a byte
  std::uint32_t zero_sign;            // the sign that a zero keeps
  std::uint32_t code_mask;
  std::uint32_t stochastic_bits;
  // simple, quick, integers
  std::uint32_t min_binade;  // min_field in f32's position
  float magic;               // 2^(23 - mantissa bits)
  std::uint32_t step_mask;   // of the low bits of a sum
  std::uint32_t down_shift;  // factor: the high word of the product (>> 32) is an exponent in the
                             // position of a field
  std::uint32_t raw_offset;  // excess of the field of a sum, or of a binade
  std::uint32_t raw_nan;     // simple: nan_code plus that excess
  float finer_magic;         // for half steps
  float draw_scale;          // a binade times this is the lowest bit of a draw
  std::uint32_t draw_base;   // f32 of 128 steps, the draw of n bits below its 2^(n + 7)
  float integer_magic;       // simple_integers
  float inf_beyond;          // Inf itself, unless Inf has a special code
  float number_most;         // simple, one_nan, one_zero: larger magnitudes become NaN
  // shifts, e8m0
  std::uint32_t signed_top;       // bit 31 where the format has a sign
  std::uint32_t negative_beyond;  // greater bits are negative values that become negative_code
  std::uint32_t negative_code, zero_code;
  std::uint32_t tiny_below;  // e8m0: what rounds up between the two smallest values
};

inline constexpr std::uint32_t kDrawOffset = 128;  // steps added with a draw

enum class DecodeKind : std::uint8_t {
  plain,     // NaN, if any, is all ones
  ieee,      // Inf, and NaN above it
  fnuz,      // NaN at the code of minus zero, nothing else
  specials,  // both
  integers,  // two's complement
  powers,    // e8m0
};

struct DecodePlan {
  std::uint32_t code_mask, magnitude_mask, sign_mask, sign_shift;
  std::uint32_t up_shift;  // of a field to f32's position
  float scale;
  std::uint32_t special;    // fields from here on are Inf (inf_field) or NaN
  std::uint32_t inf_field;  // ~0: none
  std::uint32_t nan_code;   // NaN in place of minus zero; ~0: none
  DecodeKind kind;
  bool exact16;  // every value is a bf16
};

// False if rounding in f32 cannot encode the format.
bool encode_plan(const Format& format, const EncodePolicy& policy, EncodePlan* plan,
                 EncodeKind* kind);

// False if f32 does not hold every value of the format.
bool decode_plan(const Format& format, DecodePlan* plan);

}  // namespace octavo::cuda
