// Kernels::transpose by blocks that fit the first-level cache.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {
namespace {

template <std::int64_t kBytes>
void transpose_blocks(const std::byte* from, std::int64_t rows, std::int64_t cols, std::byte* to) {
  constexpr std::int64_t kBlock = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kBlock)
    for (std::int64_t c0 = 0; c0 < cols; c0 += kBlock)
      for (std::int64_t c = c0; c < std::min(cols, c0 + kBlock); ++c)
        for (std::int64_t r = r0; r < std::min(rows, r0 + kBlock); ++r)
          std::memcpy(to + (c * rows + r) * kBytes, from + (r * cols + c) * kBytes, kBytes);
}

}  // namespace

void transpose_matrix(const Exec&, const Matrix& from, const Matrix& to) {
  const auto* const in = static_cast<const std::byte*>(from.data);
  auto* const out = static_cast<std::byte*>(to.data);
  const int bytes = element_bytes(from.dtype, from.format);
  if (bytes == 2) transpose_blocks<2>(in, from.rows, from.cols, out);
  if (bytes == 4) transpose_blocks<4>(in, from.rows, from.cols, out);
  if (bytes == 8) transpose_blocks<8>(in, from.rows, from.cols, out);
}

}  // namespace octavo::cpu
