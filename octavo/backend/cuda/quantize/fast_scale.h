// What the fast quantizers need to make a scale, worked out on the host: octavo's own arithmetic,
// poisoning, e8m0, f32 or two-level scales; and Transformer Engine's for e8m0 and f32, which leave
// NaN out of the amax. device/fast_scale.cuh has the few instructions left.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

enum class FastKind : std::uint8_t {
  e8m0,       // a power of two in a byte
  power_f32,  // a power of two in an f32
  quotient,   // amax / max in an f32
  inverse,    // of what is applied, max / amax, the reciprocal in an f32
  two_level,  // e4m3 times one f32
};

struct FastScale {
  FastKind kind = FastKind::quotient;
  // Powers of two: the exponent of amax less that of the largest value, and one more where the
  // mantissa of amax is beyond a threshold. All four rules are that: `carry` added to the bits of
  // amax carries into its exponent there.
  int top_exponent = 0;
  std::uint32_t carry = 0;
  float max = 1.0F;     // of the element format; over 2^margin where inverse
  float margin = 1.0F;  // 2^margin
  std::uint32_t poison_code = 0;

  bool drops_nan = false;  // from the amax; Inf does not poison then
  // e8m0, of an amax that is not finite, and the one of Transformer Engine's that has scale 0 only
  // because its quotient was rounded (docs/numerics/peer-arith.md).
  std::uint32_t infinite_bits = 0xFF, infinite_factor = 0x7FC00000, te_zero_scale_amax = 0xFFFFFFFF;
  // Inverses: bits that are kept of them, and what one beyond f32 is.
  std::uint32_t kept_bits = 0xFFFFFFFF;
  float largest = 0.0F;
};

// False where a general kernel has to do it.
bool fast_scale(const ScaleSpec& spec, const Format& element, FastScale* scale);

// How elements are encoded.
enum class FastElement : std::uint8_t { e4m3, e5m2, e2m1, lanes };
FastElement fast_element(const Format& element);

}  // namespace octavo::cuda
