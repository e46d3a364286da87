// AMX in plain code, for the sources of isa/amx: eight tiles of a thread, their configuration, and
// TDPBF16PS and TDPBSSD by the operation that Intel's manual gives, with subnormal numbers taken
// and written as zero. An instruction on a tile that is not configured stops the program, as it
// does on a CPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace octavo::simde {

struct Tiles {
  struct Config {
    std::uint8_t palette, start_row, reserved[14];
    std::uint16_t row_bytes[16];
    std::uint8_t rows[16];
  };
  static_assert(sizeof(Config) == 64);
  Config config{};
  std::uint8_t bytes[8][16][64];

  [[nodiscard]] int rows(int tile) const {
    const auto i = static_cast<std::size_t>(tile);
    if (config.palette != 1 || config.rows[i] == 0 || config.rows[i] > 16 ||
        config.row_bytes[i] == 0 || config.row_bytes[i] > 64) {
      std::fputs("an AMX instruction on a tile that is not configured\n", stderr);
      std::abort();
    }
    return config.rows[i];
  }
  [[nodiscard]] std::size_t width(int tile) const {
    return config.row_bytes[static_cast<std::size_t>(tile)];
  }
};
inline thread_local Tiles tiles;

inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? x * 0.0F : x; }
inline float bf16_at(const std::uint8_t* at) {
  std::uint16_t half = 0;
  std::memcpy(&half, at, 2);
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float x = 0.0F;
  std::memcpy(&x, &bits, 4);
  return flushed(x);
}

inline void add_products(int to, int a, int b) {
  const int rows = tiles.rows(to), pairs = static_cast<int>(tiles.width(a)) / 4;
  if (tiles.rows(a) != rows || tiles.rows(b) != pairs || tiles.width(to) != tiles.width(b))
    std::abort();
  const int cols = static_cast<int>(tiles.width(to)) / 4;
  for (int m = 0; m < rows; ++m) {
    float sums[2][16] = {};
    for (int k = 0; k < pairs; ++k)
      for (int odd = 0; odd < 2; ++odd) {
        const float left = bf16_at(tiles.bytes[a][m] + 4 * k + 2 * odd);
        for (int n = 0; n < cols; ++n)
          sums[odd][n] =
              flushed(std::fma(left, bf16_at(tiles.bytes[b][k] + 4 * n + 2 * odd), sums[odd][n]));
      }
    for (int n = 0; n < cols; ++n) {
      float sum = 0.0F;
      std::memcpy(&sum, tiles.bytes[to][m] + 4 * n, 4);
      sum = flushed(flushed(sum) + flushed(sums[0][n] + sums[1][n]));
      std::memcpy(tiles.bytes[to][m] + 4 * n, &sum, 4);
    }
  }
}

// TDPBSSD: four products of int8 to each sum of 32 bits.
inline void add_integers(int to, int a, int b) {
  const int rows = tiles.rows(to), words = static_cast<int>(tiles.width(a)) / 4;
  if (tiles.rows(a) != rows || tiles.rows(b) != words || tiles.width(to) != tiles.width(b))
    std::abort();
  const int cols = static_cast<int>(tiles.width(to)) / 4;
  for (int m = 0; m < rows; ++m)
    for (int n = 0; n < cols; ++n) {
      std::int32_t sum = 0;
      std::memcpy(&sum, tiles.bytes[to][m] + 4 * n, 4);
      for (int k = 0; k < words; ++k)
        for (int i = 0; i < 4; ++i)
          sum += static_cast<std::int8_t>(tiles.bytes[a][m][4 * k + i]) *
                 static_cast<std::int8_t>(tiles.bytes[b][k][4 * n + i]);
      std::memcpy(tiles.bytes[to][m] + 4 * n, &sum, 4);
    }
}

}  // namespace octavo::simde

static inline void _tile_loadconfig(const void* from) {
  std::memcpy(&octavo::simde::tiles.config, from, sizeof octavo::simde::tiles.config);
}
static inline void _tile_release() { octavo::simde::tiles.config = {}; }
static inline void _tile_zero(int tile) {
  for (int row = 0; row < octavo::simde::tiles.rows(tile); ++row)
    std::memset(octavo::simde::tiles.bytes[tile][row], 0, 64);
}
static inline void _tile_loadd(int tile, const void* from, std::int64_t pitch) {
  for (int row = 0; row < octavo::simde::tiles.rows(tile); ++row)
    std::memcpy(octavo::simde::tiles.bytes[tile][row],
                static_cast<const std::byte*>(from) + row * pitch,
                octavo::simde::tiles.width(tile));
}
static inline void _tile_stored(int tile, void* to, std::int64_t pitch) {
  for (int row = 0; row < octavo::simde::tiles.rows(tile); ++row)
    std::memcpy(static_cast<std::byte*>(to) + row * pitch, octavo::simde::tiles.bytes[tile][row],
                octavo::simde::tiles.width(tile));
}
static inline void _tile_dpbf16ps(int to, int a, int b) { octavo::simde::add_products(to, a, b); }
static inline void _tile_dpbssd(int to, int a, int b) { octavo::simde::add_integers(to, a, b); }
