#include <algorithm>
#include <cstring>

#include "octavo/pipeline/stream/transpose_internal.h"

namespace octavo {
namespace {

// In blocks that fit the L1 cache.
template <std::int64_t kBytes>
void turn(const std::byte* from, std::int64_t rows, std::int64_t cols, std::byte* to) {
  constexpr std::int64_t kBlock = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kBlock)
    for (std::int64_t c0 = 0; c0 < cols; c0 += kBlock)
      for (std::int64_t c = c0; c < std::min(cols, c0 + kBlock); ++c)
        for (std::int64_t r = r0; r < std::min(rows, r0 + kBlock); ++r)
          std::memcpy(to + (c * rows + r) * kBytes, from + (r * cols + c) * kBytes, kBytes);
}

}  // namespace

void transpose(std::span<const std::byte> from, std::int64_t rows, std::int64_t cols,
               std::int64_t element_bytes, std::span<std::byte> to) {
  if (element_bytes == 2) turn<2>(from.data(), rows, cols, to.data());
  if (element_bytes == 4) turn<4>(from.data(), rows, cols, to.data());
  if (element_bytes == 8) turn<8>(from.data(), rows, cols, to.data());
}

}  // namespace octavo
