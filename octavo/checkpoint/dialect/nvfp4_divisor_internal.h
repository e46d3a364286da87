// The second level of NVFP4 as a divisor. compressed-tensors stores g = RN(2688 / amax), others and
// octavo t = RN(amax / 2688); 2688 = 448 * 6 is the largest e4m3 scale times the largest e2m1 code.
// Neither is the other's rounded reciprocal, but the amax of a bf16 or f16 weight has so few bits
// that both give it back: then each is what its own writer would have stored, and nothing is lost.
// Where no amax explains a number it is the rounded reciprocal, off by an ulp at most.
#pragma once

#include "octavo/tensor/dtype.h"

namespace octavo {

// From t to g, and from g to t; `source` is the type of the weight.
[[nodiscard]] float divisor_of(float tensor_scale, DType source);
[[nodiscard]] float multiplier_of(float divisor, DType source);

}  // namespace octavo
