// MX tensors for hardware whose products know one scale a row, or one for 128 of K, but none for
// 32 (Hopper): blocks are brought to the largest scale among them, once, instead of in every
// product.
//   const Folded w = fold(quantize(weights, preset("mxfp8")), AlignTo::rows);
//   if (w.changed == 0) ...  // w.tensor is the MX tensor, number for number
//   Tensor y = gemm(quantize_aligned(x, preset("mxfp8"), AlignTo::rows).tensor, w.tensor);
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/view.h"

namespace octavo {

// What has one scale afterwards.
enum class AlignTo : std::uint8_t {
  rows,           // every row: the quickest products
  blocks_of_128,  // every 128 elements of a row: fewer numbers change where a row has large blocks
                  // and small ones
};

struct Aligned {
  // Codes of the same format with scales of f32 that are powers of two, such as products take
  // them: [..., R, 1], or [..., R, K / 128] in column-major order.
  QuantizedTensor tensor;
  // Elements that are other numbers now, in both copies where there are two. 0: it holds what the
  // MX tensor held, and an exact product of it is that of the MX tensor.
  std::int64_t changed = 0;
};

// A block whose scale is 2^-n of the largest has its codes multiplied by 2^-n, to nearest even.
// Numbers change only where they become subnormal and lose bits: in e4m3fn below 2^-6, in e5m2
// below 2^-14. From n = 19 (e5m2: 33) on all of a block becomes zero. NaN and Inf keep their codes.
// f32 holds every scale of MX. A scale of NaN is that of its whole row (or 128 elements)
// afterwards, whose products are NaN either way: those elements are not counted.
//
// `mx` is e4m3fn or e5m2 in blocks of 1 x 32 along the last axis, with e8m0 scales. A columnwise
// copy is folded, too, along its own rows. `changed` is for the host: on a device the call waits.
[[nodiscard]] OCTAVO_API Aligned align_exponents(const QuantizedTensor& mx, AlignTo to,
                                                 const QuantizeOptions& options = {});

// fold(quantize(values, mx), to), bit for bit; on a device in one pass over the values where the
// scaling is usual and a row is not too long.
[[nodiscard]] OCTAVO_API Aligned quantize_aligned(const View& values, const Scaling& mx, AlignTo to,
                                                  const QuantizeOptions& options = {});

// The same into memory of make_aligned, without waiting for a device; may be captured into a graph.
// `changed`, if given, is memory beside the tensors' and grows by the number.
OCTAVO_API void align_exponents_into(const QuantizedTensor& mx, QuantizedTensor& out,
                                     const QuantizeOptions& options = {},
                                     std::int64_t* changed = nullptr);
OCTAVO_API void quantize_aligned_into(const View& values, const Scaling& mx, QuantizedTensor& out,
                                      const QuantizeOptions& options = {},
                                      std::int64_t* changed = nullptr);
[[nodiscard]] OCTAVO_API QuantizedTensor make_aligned(const Shape& shape, DType source,
                                                      const Scaling& mx, AlignTo to,
                                                      Device device = {}, void* stream = nullptr);

// How folded codes and scales lie: tiles of 1 x 0 or 1 x 128, f32. It says nothing of how the
// numbers were found: quantize with it makes other codes than quantize_aligned.
[[nodiscard]] OCTAVO_API Scaling aligned_scaling(const Scaling& mx, AlignTo to);

}  // namespace octavo
