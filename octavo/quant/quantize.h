// Values to codes with scales and back.
#pragma once

#include "octavo/backend/kernels.h"
#include "octavo/base/macros.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

struct QuantizeOptions {
  int threads = 0;           // 0: all cores the thread pool has
  Counts* counts = nullptr;  // if given, receives what was met
  float* amax = nullptr;     // if given, receives the largest magnitude of the tensor
  // If given, values are multiplied by this and the scale is its reciprocal, whatever the data:
  // delayed scaling, per tensor only.
  const float* given_inv_scale = nullptr;
  const Kernels* backend = nullptr;  // null: the one the registry chooses
  Log* log = nullptr;                // if given, is told when a backend falls back to reference
};

// f64, f32, f16 or bf16 values of any shape and strides. Allocates the result and nothing else that
// grows with the tensor.
[[nodiscard]] OCTAVO_API QuantizedTensor quantize(const View& values, const Scaling& scaling,
                                                  const QuantizeOptions& options = {});
// Into a result of an earlier call, or of make_quantized, whose shape and scaling fit.
OCTAVO_API void quantize_into(const View& values, QuantizedTensor& out,
                              const QuantizeOptions& options = {});

// From the rowwise copy, or from the columnwise one where that is all there is. Scale times value
// is rounded to f32 and then to the type; f64 gets it exactly.
[[nodiscard]] OCTAVO_API Tensor dequantize(const QuantizedTensor& from, DType dtype = DType::f32,
                                           const QuantizeOptions& options = {});
OCTAVO_API void dequantize_into(const QuantizedTensor& from, const View& values,
                                const QuantizeOptions& options = {});

// Equal to dequantizing to f32 and quantizing that, tile by tile without the copy in between.
[[nodiscard]] OCTAVO_API QuantizedTensor requantize(const QuantizedTensor& from,
                                                    const Scaling& scaling,
                                                    const QuantizeOptions& options = {});

// The largest magnitude: NaN if there is a NaN, unless `of` leaves those out.
[[nodiscard]] OCTAVO_API float amax(const View& values, const QuantizeOptions& options = {},
                                    AmaxOf of = AmaxOf::all);

}  // namespace octavo
