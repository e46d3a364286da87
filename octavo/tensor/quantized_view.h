// QuantizedMatrix (codes, scales, tile) as plain data for kernels, and Tile, the rectangle of
// elements that share a scale.
#pragma once

#include <cstdint>

#include "octavo/tensor/view.h"

namespace octavo {

// The rectangle that shares one scale; 0 stands for the whole extent. {0, 0} per tensor, {1, 0} per
// row, {0, 1} per column, {1, 32} MX, {128, 128} weight blocks. Tiles at the edges are smaller.
struct Tile {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  constexpr bool operator==(const Tile&) const = default;
};
inline constexpr std::int64_t kMxBlock = 32;  // elements that share a scale of MX

// A tile's extent within an array: never 0, and not beyond the array.
constexpr std::int64_t tile_extent(std::int64_t tile, std::int64_t size) {
  return tile == 0 || tile > size ? (size > 0 ? size : 1) : tile;
}
constexpr std::int64_t tile_count(std::int64_t tile, std::int64_t size) {
  const std::int64_t extent = tile_extent(tile, size);
  return size / extent + (size % extent != 0 ? 1 : 0);
}

// Scales form a grid of tile_count(rows) x tile_count(cols): f32, bf16 or f16 values, or codes.
struct QuantizedMatrix {
  Matrix codes{};
  Matrix scales{};
  Tile tile{};
  float* tensor_scale = nullptr;  // second level, where scales are e4m3

  [[nodiscard]] constexpr bool wanted() const { return codes.data != nullptr; }
};

}  // namespace octavo
