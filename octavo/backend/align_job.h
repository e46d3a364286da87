// MX exponent alignment (align_exponents) as plain data for the kernel interface (kernels.h): the
// block exponents of a row, or of 128 columns of it, become one. docs/numerics/gemm.md says what
// becomes of a code.
#pragma once

#include <cstdint>

#include "octavo/tensor/quantized_view.h"

namespace octavo {

inline constexpr std::int64_t kAlignRun = 128;  // columns that share a scale, if not all of a row

// The scale of a row, or of 128 columns of it, becomes the largest of its block scales; codes of
// the other blocks are multiplied by 2^-(difference of exponents), rounded to nearest even. NaN and
// Inf keep their codes. A NaN block scale makes the scale of its whole row or run NaN; the codes
// there stay.
struct MxAlignJob {
  // Codes of e4m3fn or e5m2, contiguous along a row; scales of e8m0 in tiles of 1 x 32.
  QuantizedMatrix from{};
  // Codes of the same format, in the same memory or in memory of their own; scales of f32 in tiles
  // of 1 x 0, or of 1 x 128: scales of neighbouring rows are contiguous.
  QuantizedMatrix to{};
  // If given: incremented by the number of elements whose value changed. Elements whose scale is
  // NaN do not count.
  std::int64_t* changed = nullptr;
};

}  // namespace octavo
