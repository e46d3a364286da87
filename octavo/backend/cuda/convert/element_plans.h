// The constants of lane kernels (device/encode_element.cuh, decode_element.cuh), worked out on the
// host.
#pragma once

#include <cstdint>

#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

enum class EncodeKind : std::uint8_t {
  // f32 itself rounds, most formats:
  simple,           // zero and NaN keep their sign, nothing else is special
  one_nan,          // NaN has one code
  one_zero,         // and zero has, too
  quick,            // everything may have its own code
  simple_integers,  // two's complement
  integers,         // with a code for everything
  shifts,           // by shifts: where a sum that rounds would not be an f32, or without a sign
  // Powers of two from 2^-127, which f32 has only as a subnormal:
  simple_e8m0,  // what is below zero becomes the smallest, as zero does
  e8m0,         // by any policy
};

// Are draws of stochastic rounding added in f32? Elsewhere they are whole numbers.
constexpr bool draws_in_sums(EncodeKind kind) { return kind < EncodeKind::shifts; }

// Pairs are indexed by the sign. Decisions that a policy has taken are numbers that a comparison
// never meets, or masks: kernels have no branch for them.
struct EncodePlan {
  std::uint32_t limit[2];  // f32 bits that magnitudes are cut to
  std::uint32_t inf_code[2], nan_code[2];
  std::uint32_t inf_flips, nan_flips;  // bits in which the codes of the two signs differ
  std::uint32_t min_field;             // exponent field, in f32, of the smallest normal number
  std::uint32_t shift;                 // 23 - mantissa bits
  std::uint32_t mantissa_bits;
  std::uint32_t sign_shift;           // places that bit 31 moves down by to be the sign of a code
  std::uint32_t sign_bit, sign_down;  // that sign; what bits are multiplied by to get it, >> 32
  std::uint32_t sign_below;           // places that sign is below the top of a byte
  std::uint32_t zero_sign;            // the sign that a zero keeps
  std::uint32_t code_mask;
  std::uint32_t stochastic_bits;
  // simple, quick, integers
  std::uint32_t min_binade;  // min_field in its place
  float magic;               // 2^(23 - mantissa bits)
  std::uint32_t step_mask;   // of the low bits of a sum
  std::uint32_t down_shift;  // multiplied by this, >> 32, an exponent is where a field has it
  std::uint32_t raw_offset;  // what the field of a sum, or of a binade, has too much
  std::uint32_t raw_nan;     // simple: nan_code with it
  float finer_magic;         // for half steps
  float draw_scale;          // a binade times this is the last bit of a draw
  std::uint32_t draw_base;   // f32 of 128 steps, the draw of n bits below its 2^(n + 7)
  float integer_magic;       // simple_integers
  float inf_beyond;          // Inf itself, unless Inf becomes something of its own
  float number_most;         // simple, one_nan, one_zero: beyond this is what becomes NaN
  // shifts, e8m0
  std::uint32_t signed_top;       // bit 31 where the format has a sign
  std::uint32_t negative_beyond;  // bits above this are values below zero that become negative_code
  std::uint32_t negative_code, zero_code;
  std::uint32_t tiny_below;  // e8m0: what rounds up between the two smallest
};

inline constexpr std::uint32_t kDrawOffset = 128;  // steps that come in with a draw

enum class DecodeKind : std::uint8_t {
  plain,     // NaN, if any, has all ones
  ieee,      // Inf, and NaN beyond it
  fnuz,      // NaN where minus zero would be, nothing else
  specials,  // both
  integers,  // two's complement
  powers,    // e8m0
};

struct DecodePlan {
  std::uint32_t code_mask, magnitude_mask, sign_mask, sign_shift;
  std::uint32_t up_shift;  // of a field to f32's
  float scale;
  std::uint32_t special;    // fields from here on are Inf (inf_field) or NaN
  std::uint32_t inf_field;  // ~0: none
  std::uint32_t nan_code;   // NaN in place of minus zero; ~0: none
  DecodeKind kind;
  bool exact16;  // every value is a bf16
};

// False where f32 lanes cannot encode the format.
bool encode_plan(const Format& format, const EncodePolicy& policy, EncodePlan* plan,
                 EncodeKind* kind);

// False where codes of the format are not exactly f32.
bool decode_plan(const Format& format, DecodePlan* plan);

}  // namespace octavo::cuda
