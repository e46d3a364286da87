// The constants of lane kernels (device/encode_lane.cuh, decode_lane.cuh), worked out on the host.
#pragma once

#include <cstdint>

#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

enum class LaneKind : std::uint8_t {
  quick,     // a zero, a sign, an exponent; f32 itself rounds: most formats
  integers,  // two's complement, in the same way
  shifts,    // by shifts, where a sum that rounds would not be an f32, or without a sign
  e8m0,      // powers of two from 2^-127, which f32 has only as a subnormal
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
  std::uint32_t sign_shift;  // places that bit 31 moves down by to be the sign of a code
  std::uint32_t zero_sign;   // the sign that a zero keeps
  std::uint32_t code_mask;
  std::uint32_t stochastic_bits;
  // quick, integers
  std::uint32_t min_binade;   // min_field in its place
  std::uint32_t magic;        // exponent that is added to a binade, in its place
  std::uint32_t first_field;  // min_field << mantissa_bits
  float inf_beyond;           // Inf itself, unless Inf becomes something of its own
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
