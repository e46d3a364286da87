// One scale for the tensor and codes of E4M3, as torch._scaled_mm takes them, or of any format:
// codes and scale, never one without the other.
#pragma once

#include "octavo/base/macros.h"
#include "octavo/quant/quantize.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

struct Fp8Quantized {
  Tensor codes;  // of the input's shape
  Tensor scale;  // one f32: value ~ scale * decode(code)
};

// The codes are dense and keep the order of the input's strides: the transpose of a row-major
// matrix, which is column-major, gives column-major codes. An input that repeats elements (stride
// 0) gives row-major ones. A scaling has one f32 scale for the tensor, and codes are not packed.
[[nodiscard]] OCTAVO_API Fp8Quantized fp8_quantize(const View& values,
                                                   const QuantizeOptions& options = {},
                                                   const Scaling& scaling = preset("fp8"));

}  // namespace octavo
