// MX codes brought to common exponents, as plain data that crosses the kernel door.
// docs/numerics/gemm.md says what becomes of a code.
#pragma once

#include <cstdint>

#include "octavo/tensor/quantized_view.h"

namespace octavo {

inline constexpr std::int64_t kAlignRun = 128;  // columns that share a scale, if not all of a row

// The scale of a row, or of 128 columns of it, is the largest of its blocks' there; codes of other
// blocks are multiplied by the powers of two that they are smaller by, to nearest even. NaN and Inf
// keep their codes. A scale of NaN is that of its whole row or run, whose codes stay.
struct MxAlignJob {
  // Codes of e4m3fn or e5m2, neighbours along a row; scales of e8m0 in tiles of 1 x 32.
  QuantizedMatrix from{};
  // Codes of the same format, in the same memory or in memory of their own; scales of f32 in tiles
  // of 1 x 0, or of 1 x 128: those of neighbouring rows are neighbours.
  QuantizedMatrix to{};
  // If given: grows by the elements that are other numbers afterwards. Those with a scale of NaN
  // beside them are not among them.
  std::int64_t* changed = nullptr;
};

}  // namespace octavo
