// Exponent alignment of MX tensors, for hardware whose FP8 GEMM takes one scale per row or per 128
// of K, but not per 32 (Hopper): the exponents of all blocks of a row are aligned to the largest,
// once, instead of in every product.
//   const Aligned w = align_exponents(quantize(weights, preset("mxfp8")), AlignTo::rows);
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

// The elements that share one scale after alignment.
enum class AlignTo : std::uint8_t {
  rows,           // every row: the fastest GEMM
  blocks_of_128,  // every 128 elements of a row: fewer numbers change where a row has large blocks
                  // and small ones
};

struct Aligned {
  // Codes of the same format with f32 power-of-two scales in the layout that gemm takes: [..., R,
  // 1], or [..., R, K / 128] in column-major order.
  QuantizedTensor tensor;
  // Number of elements whose value changed, in both copies where there are two. 0: the values are
  // those of the MX tensor, and so is an exact product.
  std::int64_t changed = 0;
};

// A block whose scale is 2^-n of the largest has its codes multiplied by 2^-n, to nearest even.
// Numbers change only where they become subnormal and lose bits: in e4m3fn below 2^-6, in e5m2
// below 2^-14. From n = 19 (e5m2: 33) on all of a block becomes zero. NaN and Inf keep their codes.
// f32 holds every scale of MX. A scale of NaN is that of its whole row (or 128 elements)
// afterwards, whose products are NaN either way: those elements are not counted.
//
// `mx` is e4m3fn or e5m2 in blocks of 1 x 32 along the last axis, with e8m0 scales. A columnwise
// copy is aligned along its own rows. `changed` is a host number: on a device the call
// synchronizes.
[[nodiscard]] OCTAVO_API Aligned align_exponents(const QuantizedTensor& mx, AlignTo to,
                                                 const QuantizeOptions& options = {});

// align_exponents(quantize(values, mx), to), bit for bit; on a device in one fused pass over the
// values where the scaling is a plain preset and a row is not too long.
[[nodiscard]] OCTAVO_API Aligned quantize_aligned(const View& values, const Scaling& mx, AlignTo to,
                                                  const QuantizeOptions& options = {});

// The same into memory of make_aligned, without synchronization; may be captured into a graph.
// `changed`, if given, is in the memory of the tensors' device and is incremented by the number of
// changed elements.
OCTAVO_API void align_exponents_into(const QuantizedTensor& mx, QuantizedTensor& out,
                                     const QuantizeOptions& options = {},
                                     std::int64_t* changed = nullptr);
OCTAVO_API void quantize_aligned_into(const View& values, const Scaling& mx, QuantizedTensor& out,
                                      const QuantizeOptions& options = {},
                                      std::int64_t* changed = nullptr);
[[nodiscard]] OCTAVO_API QuantizedTensor make_aligned(const Shape& shape, DType source,
                                                      const Scaling& mx, AlignTo to,
                                                      Device device = {}, void* stream = nullptr);

// The Scaling of aligned tensors: tiles of 1 x 0 or 1 x 128, f32 scales. It describes the layout
// alone: quantize with it gives other codes than quantize_aligned.
[[nodiscard]] OCTAVO_API Scaling aligned_scaling(const Scaling& mx, AlignTo to);

}  // namespace octavo
