// Fused norm or activation + quantize: the producer's f32 results are quantized without a 16-bit or
// full-size copy. ops/norm.h and ops/activation.h make and check a Produced.
#pragma once

#include "octavo/backend/kernels.h"
#include "octavo/base/macros.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Made by produced(); it points into the views that were given.
struct Produced {
  View x{};
  Shape shape{};  // of what comes out
  Producer producer{};
};

// The same codes and scales as of the plain f32 values. Most scalings work on a block of rows at a
// time, in memory that does not grow with the tensor. Scalings whose tiles run down whole columns,
// that fit a policy other than max to the whole tensor, or that draw stochastic bits for a
// columnwise copy need all of it at once: for these a full-size f32 copy is made where the backend
// does not fuse the two.
[[nodiscard]] OCTAVO_API QuantizedTensor quantize(const Produced& values, const Scaling& scaling,
                                                  const QuantizeOptions& options = {});
OCTAVO_API void quantize_into(const Produced& values, QuantizedTensor& out,
                              const QuantizeOptions& options = {});

}  // namespace octavo
