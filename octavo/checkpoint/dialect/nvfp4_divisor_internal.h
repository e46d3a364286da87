// Conversion of NVFP4's second-level scale between multiplier (weight_scale_2) and divisor
// (weight_global_scale). compressed-tensors stores g = RN(2688 / amax), other tools and octavo t =
// RN(amax / 2688); 2688 = 448 * 6 is the largest e4m3 scale times the largest e2m1 code. Neither is
// the other's rounded reciprocal, but the amax of a bf16 or f16 weight has so few bits that it can
// be recovered from either: then each is what its own writer would have stored, and the conversion
// is lossless. Where no amax explains the number, the result is the rounded reciprocal, off by at
// most an ulp.
#pragma once

#include "octavo/tensor/dtype.h"

namespace octavo {

// From t to g, and from g to t; `source` is the dtype of the unquantized weight.
[[nodiscard]] float divisor_of(float tensor_scale, DType source);
[[nodiscard]] float multiplier_of(float divisor, DType source);

}  // namespace octavo
