// quantize, dequantize, requantize and amax: values to codes with scales and back.
#pragma once

#include <cstddef>
#include <span>

#include "octavo/backend/kernels.h"
#include "octavo/base/macros.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Pointers to numbers are to memory of the device that the views are on.
struct QuantizeOptions {
  int threads = 0;           // 0: all cores the thread pool has
  Counts* counts = nullptr;  // if given, receives the counts
  float* amax = nullptr;     // if given, receives the largest magnitude of the tensor
  bool raise_amax = false;   // `amax` becomes the maximum of itself and that instead
  // If given, values are multiplied by this and the scale is its reciprocal, whatever the data:
  // delayed scaling, per tensor only.
  const float* given_inv_scale = nullptr;
  // If given, the amax of the whole tensor, which is then not computed: for a scale per tensor, or
  // the second level of two-level scales (NVFP4).
  const float* given_amax = nullptr;
  // Policy wmse: for each of the last dimension's columns what its squared errors are multiplied
  // by, finite and not negative: E[x^2] of what the weight is multiplied by.
  std::span<const float> column_weights{};
  const Kernels* backend = nullptr;  // null: the one the registry chooses
  Log* log = nullptr;  // if given, receives a message when a backend falls back to reference
  // On a device: the stream (a cudaStream_t; null is the default stream) and a device workspace for
  // small scratch, which comes from the device's memory pool where the workspace is too small.
  void* stream = nullptr;
  std::span<std::byte> workspace{};
};

// All memory of a call is on one device. On a GPU a call returns when its work is queued on
// options.stream, scales and amaxes never leave the device, and a call into existing memory may be
// captured into a graph. It synchronizes only for results that the host needs: NaN that is an error
// (formats without NaN that do not poison), and the number that amax returns.

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
OCTAVO_API void requantize_into(const QuantizedTensor& from, QuantizedTensor& out,
                                const QuantizeOptions& options = {});

// The largest magnitude: NaN if there is a NaN, unless `of` leaves those out.
[[nodiscard]] OCTAVO_API float amax(const View& values, const QuantizeOptions& options = {},
                                    AmaxOf of = AmaxOf::all);
// The same into memory of the device that the values are on, without synchronization: `result`
// becomes the maximum of itself and the largest magnitude; NaN stays.
OCTAVO_API void raise_amax(const View& values, float* result, const QuantizeOptions& options = {},
                           AmaxOf of = AmaxOf::all);

}  // namespace octavo
