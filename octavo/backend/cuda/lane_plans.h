// The constants of lane kernels (device/encode_lane.cuh, decode_lane.cuh), worked out on the host.
#pragma once

#include <cstdint>

#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

enum class LaneKind : std::uint8_t {
  plain,  // a sign, a zero, an exponent: most formats
  other,  // two's complement, or no sign
  e8m0,   // powers of two from 2^-127, which f32 has only as a subnormal
};

// Pairs are indexed by the sign.
struct LaneEncode {
  std::uint32_t limit[2];  // f32 bits that magnitudes are cut to
  std::uint32_t inf_code[2], nan_code[2];
  std::uint32_t min_field;  // exponent field, in f32, of the smallest normal number
  std::uint32_t shift;      // 23 - mantissa bits
  std::uint32_t mantissa_bits;
  std::uint32_t sign_shift;  // places that bit 31 moves down by to be the sign of a code
  std::uint32_t zero_keeps_sign;
  std::uint32_t code_mask;
  // LaneKind::other and e8m0
  std::uint32_t is_signed, negate, negative_special, negative_code, zero_code, tiny_rounds_up;
  // Rounding::stochastic
  std::uint32_t stochastic_bits;
};

struct LaneDecode {
  std::uint32_t code_mask, magnitude_mask, sign_mask, sign_shift;
  std::uint32_t up_shift;  // of a field to f32's
  float scale;
  std::uint32_t special;    // fields from here on are Inf (inf_field) or NaN
  std::uint32_t inf_field;  // ~0: none
  std::uint32_t nan_code;   // NaN in place of minus zero; ~0: none
  std::uint32_t integer;    // two's complement
  std::uint32_t powers;     // e8m0
};

// False where f32 lanes cannot encode the format.
bool lane_encode(const Format& format, const EncodePolicy& policy, LaneEncode* plan,
                 LaneKind* kind);

// False where codes of the format are not exactly f32.
bool lane_decode(const Format& format, LaneDecode* plan);

}  // namespace octavo::cuda
