// The constants of lane kernels (device/encode_lane.cuh, decode_lane.cuh), worked out on the host.
#pragma once

#include <cstdint>

#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

enum class LaneKind : std::uint8_t {
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

// Pairs are indexed by the sign. Decisions that a policy has taken are numbers that a comparison
// never meets, or masks: kernels have no branch for them.
struct LaneEncode {
  std::uint32_t limit[2];  // f32 bits that magnitudes are cut to
  std::uint32_t inf_code[2], nan_code[2];
  std::uint32_t inf_flips, nan_flips;  // bits in which the codes of the two signs differ
  std::uint32_t min_field;             // exponent field, in f32, of the smallest normal number
  std::uint32_t shift;                 // 23 - mantissa bits
  std::uint32_t mantissa_bits;
  std::uint32_t sign_shift;           // places that bit 31 moves down by to be the sign of a code
  std::uint32_t sign_bit, sign_down;  // that sign; what bits are multiplied by to get it, >> 32
  std::uint32_t zero_sign;            // the sign that a zero keeps
  std::uint32_t code_mask;
  std::uint32_t stochastic_bits;
  // simple, quick, integers
  std::uint32_t min_binade;    // min_field in its place
  float magic;                 // 2^(23 - mantissa bits)
  std::uint32_t step_mask;     // of the low bits of a sum
  std::uint32_t down_shift;    // multiplied by this, >> 32, an exponent is where a field has it
  std::uint32_t first_field;   // of a sum
  float finer_magic;           // for half steps, or those of a draw
  std::uint32_t first_binade;  // of a binade
  float integer_magic;         // simple_integers
  float inf_beyond;            // Inf itself, unless Inf becomes something of its own
  // shifts, e8m0
  std::uint32_t signed_top;       // bit 31 where the format has a sign
  std::uint32_t negative_beyond;  // bits above this are values below zero that become negative_code
  std::uint32_t negative_code, zero_code;
  std::uint32_t tiny_below;  // e8m0: what rounds up between the two smallest
};

enum class DecodeKind : std::uint8_t {
  plain,     // NaN, if any, has all ones
  specials,  // Inf, or NaN where minus zero would be
  integers,  // two's complement
  powers,    // e8m0
};

struct LaneDecode {
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
bool lane_encode(const Format& format, const EncodePolicy& policy, LaneEncode* plan,
                 LaneKind* kind);

// False where codes of the format are not exactly f32.
bool lane_decode(const Format& format, LaneDecode* plan);

}  // namespace octavo::cuda
