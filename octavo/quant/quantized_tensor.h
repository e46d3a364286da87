// Codes and their scales, always both. The layout in memory is a specification that other kernels
// may rely on: docs/numerics/layout.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "octavo/base/macros.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// One quantization: of a tensor, or of its transpose.
struct OCTAVO_API QuantizedCopy {
  Tensor codes;
  Tensor scales;        // one per tile; strides as scaling.scale_order says
  Tensor tensor_scale;  // one f32, where scales are e4m3; else empty

  [[nodiscard]] bool exists() const { return codes.shape().rank() > 0 || codes.owner() != nullptr; }
  [[nodiscard]] std::int64_t nbytes() const;
};

struct OCTAVO_API QuantizedTensor {
  Shape shape{};              // of the tensor that was quantized
  DType source = DType::f32;  // its type
  Scaling scaling{};
  QuantizedCopy rowwise;
  // The quantization of the transpose, where leading dimensions are collapsed into one: codes are
  // [last, product of the others]. With it all three products of training are [M,K] x [N,K]^T.
  QuantizedCopy columnwise;

  [[nodiscard]] std::int64_t nbytes() const;
  [[nodiscard]] Device device() const;
};

// The shape of the grid of scales of a tensor of this shape.
[[nodiscard]] OCTAVO_API Shape scale_shape(const Shape& shape, const Scaling& scaling);

// Memory for a quantization, to be filled by quantize; on a device as values_on makes it.
[[nodiscard]] OCTAVO_API QuantizedTensor make_quantized(const Shape& shape, DType source,
                                                        const Scaling& scaling, Device device = {},
                                                        void* stream = nullptr);

// The same with a caller's allocator: `make` gets a dense view without memory for each part and
// returns a tensor of that type and shape without gaps.
using MakeTensor = std::function<Tensor(const View& like)>;
[[nodiscard]] OCTAVO_API QuantizedTensor make_quantized(const Shape& shape, DType source,
                                                        const Scaling& scaling,
                                                        const MakeTensor& make);

// A copy on a device, or on the host; both calls wait until it is complete.
[[nodiscard]] OCTAVO_API QuantizedTensor to_device(const QuantizedTensor& from, Device device,
                                                   void* stream = nullptr);
[[nodiscard]] OCTAVO_API QuantizedTensor to_host(const QuantizedTensor& from,
                                                 void* stream = nullptr);

// Codes and scales made outside of octavo, checked: shapes that fit, scales of the right type, none
// of them negative (an error that names the first such tile). NaN and zero are as they are. Scales
// may be row-major or column-major; the result's scaling says which. Scales of a signed type are
// checked for negative values: on a device they are copied to the host, which synchronizes and
// cannot be captured. Without `validate` there is no such check and no synchronization; scales are
// applied as they are.
[[nodiscard]] OCTAVO_API QuantizedTensor quantized_from(const Shape& shape, const Scaling& scaling,
                                                        const Tensor& codes, const Tensor& scales,
                                                        const Tensor& tensor_scale = {},
                                                        void* stream = nullptr,
                                                        bool validate = true);

// The transpose, from the columnwise copy, without copying. Leading dimensions are collapsed into
// one. Throws where there is no columnwise copy.
[[nodiscard]] OCTAVO_API QuantizedTensor transposed(const QuantizedTensor& tensor);

// Throws Error(invalid_argument) that names the first tile whose scale is negative. On a device it
// copies the scales to the host and synchronizes.
OCTAVO_API void check_scales(const QuantizedTensor& tensor, void* stream = nullptr);

}  // namespace octavo
