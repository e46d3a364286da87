// AMX tiles as GEMM and attention use them: 2 x 2 tiles of sums, two of A and two of B. Panels of A
// have 32 elements of K for each row, a row of a tile; panels of B have pairs along K side by side.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/isa/avx512/transpose16.h"

namespace octavo::cpu {
namespace {

constexpr int kSide = 32, kHalf = 16;
constexpr int kAStep = 32, kBStep = 2;        // elements of K that lie together
constexpr int kTileBytes = 1024, kLine = 64;  // of a tile; of its row

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr TileConfig() {
    for (int i = 0; i < 8; ++i) {
      row_bytes[i] = kLine;
      rows[i] = kHalf;
    }
  }
};
constexpr TileConfig kConfig;

// Another library may have configured the tiles of this thread for itself, and may do so again.
inline void enter_tiles() { _tile_loadconfig(&kConfig); }
inline void leave_tiles() { _tile_release(); }

[[gnu::always_inline]] inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
// 32 rows of 32 sums, `pitch` bytes apart.
[[gnu::always_inline]] inline void store_sums(float* to, std::int64_t pitch) {
  float* const bottom = to + kHalf * (pitch / static_cast<std::int64_t>(sizeof(float)));
  _tile_stored(0, to, pitch);
  _tile_stored(1, to + kHalf, pitch);
  _tile_stored(2, bottom, pitch);
  _tile_stored(3, bottom + kHalf, pitch);
}

// `depth` products, a multiple of 32, added to the tiles 0 to 3.
[[gnu::always_inline]] inline void multiply(const std::byte* a, std::int64_t a_pitch,
                                            std::int64_t a_step, const std::byte* b,
                                            std::int64_t depth) {
  constexpr int kBPitch = kSide * kBStep * 2;
  for (std::int64_t k = 0; k < depth; k += kAStep) {
    _tile_loadd(4, a, a_pitch);
    _tile_loadd(6, b, kBPitch);
    _tile_loadd(7, b + kLine, kBPitch);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kHalf * a_pitch, a_pitch);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += a_step;
    b += 2 * kTileBytes;
  }
}

// Panels of B: words of two elements of 32 rows; a multiple of sixteen words, as runs are of 32
// elements.
inline void interleave_pairs(const std::byte* const* rows, int count, std::int64_t words,
                             std::byte* panel) {
  for (std::int64_t w = 0; w < words; w += 16) {
    for (int half = 0; half < count; half += kHalf) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows[half + i] + w * 4);
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(panel + ((w + i) * count + half) * 4, r[i]);
    }
  }
}

// Panels of A: lines of 32 elements.
inline void interleave_lines(const std::byte* const* rows, int count, std::int64_t words,
                             std::byte* panel) {
  for (std::int64_t w = 0; w < words; ++w)
    for (int i = 0; i < count; ++i, panel += kLine)
      _mm512_storeu_si512(panel, _mm512_loadu_si512(rows[i] + w * kLine));
}

}  // namespace
}  // namespace octavo::cpu
