// Plan of the fast quantizers' scales, computed on the host: octavo's own arithmetic with
// poisoning, e8m0, f32 or two-level scales; and Transformer Engine's for e8m0 and f32, which leaves
// NaN out of the amax. fast_scale.cuh applies it on the device.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

enum class FastKind : std::uint8_t {
  e8m0,       // a power of two in a byte
  power_f32,  // a power of two in an f32
  quotient,   // amax / max in an f32
  inverse,    // inv_scale = max / amax is applied, its reciprocal stored in an f32
  two_level,  // e4m3 times one f32
};

struct FastScale {
  FastKind kind = FastKind::quotient;
  // Powers of two: the exponent of amax minus that of the largest value, plus one if the mantissa
  // of amax is above a threshold. All four rules have this form: `carry`, added to the bits of
  // amax, carries into the exponent there.
  int top_exponent = 0;
  std::uint32_t carry = 0;
  float max = 1.0F;     // of the element format; over 2^margin if inverse
  float margin = 1.0F;  // 2^margin
  std::uint32_t poison_code = 0;

  bool drops_nan = false;  // from the amax; Inf does not poison then
  // e8m0: the scale of a non-finite amax, and the one amax to which Transformer Engine gives scale
  // 0 only because its quotient was rounded (docs/numerics/peer-arith.md).
  std::uint32_t infinite_bits = 0xFF, infinite_factor = 0x7FC00000, te_zero_scale_amax = 0xFFFFFFFF;
  // inverse: the bits that are kept, and the value of one beyond f32.
  std::uint32_t kept_bits = 0xFFFFFFFF;
  float largest = 0.0F;
};

// False if only a general kernel covers it.
bool fast_scale(const ScaleSpec& spec, const Format& element, FastScale* scale);

// How elements are encoded; `lanes`: by an EncodePlan.
enum class FastElement : std::uint8_t { e4m3, e5m2, e2m1, lanes };
FastElement fast_element(const Format& element);

}  // namespace octavo::cuda
