// Loads of MX operands: sixteen codes of a row at a time, and block exponents.
#pragma once

#include <cstdint>

#include "octavo/tensor/view.h"

namespace octavo::cuda {

inline constexpr int kCodesRead = 16;

__device__ __forceinline__ std::uint32_t exponent_at(const Matrix& scales, std::int64_t row,
                                                     std::int64_t block) {
  return static_cast<const unsigned char*>(
      scales.data)[row * scales.row_pitch + block * scales.col_stride];
}

// Codes beyond the end of the row are zero. `vectors`: rows begin at multiples of 16 bytes, and so
// does `col`; `constant`: the kernel does not write them, so the read-only cache may be used.
__device__ __forceinline__ uint4 codes_at(const Matrix& codes, std::int64_t row, std::int64_t col,
                                          bool vectors, bool constant = true) {
  const unsigned char* from =
      static_cast<const unsigned char*>(codes.data) + row * codes.row_pitch + col;
  if (vectors && col + kCodesRead <= codes.cols) {
    const auto* vector = reinterpret_cast<const uint4*>(from);
    return constant ? __ldg(vector) : *vector;
  }
  std::uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < kCodesRead; ++i)
    if (col + i < codes.cols) words[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace octavo::cuda
