// AMX tiles, their configuration (_tile_loadconfig) and instructions: a microkernel of 32 x 32 sums
// in four tiles, with two tiles of A and two of B. A tile is sixteen rows of 64 bytes. Panels of A
// have 64 bytes of K for each row, a row of a tile; panels of B have the elements of K that one
// instruction lane sums, four bytes, side by side.
//
// The floor: an instruction multiplies two tiles in 16 cycles and loads one from L1 in 8, so that
// four products hide the four loads of a step. Scales that change along K are applied to the sums
// of one run while the tiles multiply the next.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/avx512/transpose16.h"

namespace octavo::cpu {
namespace {

constexpr int kSide = 32, kHalf = 16;
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

// What an instruction multiplies. The tiles of sums are f32 or int32.
struct Bf16Tiles {
  static constexpr int kStep = 32;  // elements of K in a line
  static constexpr int kWord = 2;   // and side by side in a panel of B
  using Sum = float;
  [[gnu::always_inline]] static void upper() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  [[gnu::always_inline]] static void lower() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  [[gnu::always_inline]] static __m512 value_of(const float* sums) { return _mm512_load_ps(sums); }
};
struct I8Tiles {
  static constexpr int kStep = 64;
  static constexpr int kWord = 4;
  using Sum = std::int32_t;
  [[gnu::always_inline]] static void upper() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  [[gnu::always_inline]] static void lower() {
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  [[gnu::always_inline]] static __m512 value_of(const std::int32_t* sums) {
    return _mm512_cvtepi32_ps(_mm512_load_si512(sums));
  }
};

// One step of K: lines of A and B times each other, added to the tiles 0 to 3, or 0 and 1.
template <typename T, bool kUpperOnly>
[[gnu::always_inline]] inline void multiply_step(const std::byte* a, const std::byte* b) {
  constexpr int kBPitch = 2 * kLine;
  _tile_loadd(4, a, kLine);
  _tile_loadd(6, b, kBPitch);
  _tile_loadd(7, b + kLine, kBPitch);
  T::upper();
  if constexpr (!kUpperOnly) {
    _tile_loadd(5, a + kTileBytes, kLine);
    T::lower();
  }
}

// Steps of bf16 one after another, `depth` products, added to the tiles 0 to 3.
[[gnu::always_inline]] inline void multiply_bf16(const std::byte* a, const std::byte* b,
                                                 std::int64_t depth) {
  for (std::int64_t k = 0; k < depth; k += Bf16Tiles::kStep) {
    multiply_step<Bf16Tiles, false>(a, b);
    a += 2 * kTileBytes;
    b += 2 * kTileBytes;
  }
}

template <bool kUpperOnly>
[[gnu::always_inline]] inline void zero_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (!kUpperOnly) {
    _tile_zero(2);
    _tile_zero(3);
  }
}
template <bool kUpperOnly>
[[gnu::always_inline]] inline void load_tiles(const void* sums, std::int64_t pitch) {
  const auto* top = static_cast<const std::byte*>(sums);
  _tile_loadd(0, top, pitch);
  _tile_loadd(1, top + kLine, pitch);
  if constexpr (!kUpperOnly) {
    _tile_loadd(2, top + kHalf * pitch, pitch);
    _tile_loadd(3, top + kHalf * pitch + kLine, pitch);
  }
}
template <bool kUpperOnly>
[[gnu::always_inline]] inline void store_tiles(void* sums, std::int64_t pitch) {
  auto* top = static_cast<std::byte*>(sums);
  _tile_stored(0, top, pitch);
  _tile_stored(1, top + kLine, pitch);
  if constexpr (!kUpperOnly) {
    _tile_stored(2, top + kHalf * pitch, pitch);
    _tile_stored(3, top + kHalf * pitch + kLine, pitch);
  }
}

template <typename Sum>
struct alignas(64) TileSums {
  Sum at[kSide][kSide];
};
constexpr std::int64_t kSumsPitch = kSide * 4;

// Rows of a run's sums, times scales, added to what `to` has, or instead of it.
template <typename T>
[[gnu::always_inline]] inline void scale_rows(const TileSums<typename T::Sum>& part,
                                              const MicrokernelJob& job, std::int64_t run,
                                              int first, int last, bool replaces) {
  const float* b_scale = job.b_scale + run * kSide;
  const __m512 right[2] = {_mm512_loadu_ps(b_scale), _mm512_loadu_ps(b_scale + kHalf)};
  for (int i = first; i < last; ++i) {
    const __m512 left = _mm512_set1_ps(job.a_scale[run * kSide + i]);
    float* const to = job.sums + i * job.pitch;
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512 before = replaces ? _mm512_setzero_ps() : _mm512_loadu_ps(to + j * kHalf);
      const __m512 scaled = _mm512_mul_ps(T::value_of(part.at[i] + j * kHalf), right[j]);
      _mm512_storeu_ps(to + j * kHalf, _mm512_fmadd_ps(scaled, left, before));
    }
  }
}

// The sums of all runs so far; scaled, where these were the last.
template <typename T, bool kUpperOnly>
[[gnu::always_inline]] inline void store_all(const MicrokernelJob& job) {
  if (job.a_scale == nullptr) return store_tiles<kUpperOnly>(job.sums, job.pitch * 4);
  TileSums<typename T::Sum> part;
  store_tiles<kUpperOnly>(&part, kSumsPitch);
  scale_rows<T>(part, job, 0, 0, kUpperOnly ? kHalf : kSide, true);
}

// All runs as one: sums are continued, and scaled at the end if at all.
template <typename T, bool kUpperOnly>
[[gnu::always_inline]] inline void sum_all(const MicrokernelJob& job) {
  const std::int64_t pitch = job.pitch * 4, steps = job.run * job.runs / T::kStep;
  job.overwrites ? zero_tiles<kUpperOnly>() : load_tiles<kUpperOnly>(job.sums, pitch);
  const std::byte *a = job.a, *b = job.b, *ahead = job.prefetch;
  const std::int64_t lines = (job.prefetch_bytes / kLine + steps - 1) / steps;
  for (std::int64_t step = 0; step < steps; ++step) {
    multiply_step<T, kUpperOnly>(a, b);
    for (std::int64_t line = 0; line < lines; ++line, ahead += kLine)
      _mm_prefetch(ahead, _MM_HINT_T0);
    a += 2 * kTileBytes;
    b += 2 * kTileBytes;
  }
  store_all<T, kUpperOnly>(job);
}

// Sums stay in memory of their own meanwhile: where those of `job` are, rows may be a power of two
// apart, and 32 of them more than L1 holds then.
template <typename T, bool kUpperOnly>
[[gnu::always_inline]] inline void sum_runs(const MicrokernelJob& given) {
  constexpr int kRows = kUpperOnly ? kHalf : kSide;
  TileSums<float> total;
  const auto each = [&](const auto& copy) __attribute__((always_inline)) {
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kSide; j += kHalf)
        copy(given.sums + i * given.pitch + j, total.at[i] + j);
  };
  if (!given.overwrites)
    each([](const float* from, float* to) { _mm512_store_ps(to, _mm512_loadu_ps(from)); });
  MicrokernelJob job = given;
  job.sums = total.at[0];
  job.pitch = kSide;
  const std::byte *a = job.a, *b = job.b;
  const auto steps = static_cast<int>(job.run / T::kStep);
  TileSums<typename T::Sum> parts[2];
  for (std::int64_t run = 0; run < job.runs; ++run) {
    zero_tiles<kUpperOnly>();
    for (int step = 0; step < steps; ++step) {
      multiply_step<T, kUpperOnly>(a, b);
      a += 2 * kTileBytes;
      b += 2 * kTileBytes;
      if (run > 0)
        scale_rows<T>(parts[(run - 1) & 1], job, run - 1, kRows * step / steps,
                      kRows * (step + 1) / steps, job.overwrites && run == 1);
    }
    store_tiles<kUpperOnly>(&parts[run & 1], kSumsPitch);
  }
  scale_rows<T>(parts[(job.runs - 1) & 1], job, job.runs - 1, 0, kRows,
                job.overwrites && job.runs == 1);
  each([](float* to, const float* from) { _mm512_storeu_ps(to, _mm512_load_ps(from)); });
}

template <typename T>
void tiles_microkernel(const MicrokernelJob& job) {
  const bool upper_only = job.rows != 0 && job.rows <= kHalf;
  if (job.a_scale == nullptr || job.scales_at_end)
    return upper_only ? sum_all<T, true>(job) : sum_all<T, false>(job);
  return upper_only ? sum_runs<T, true>(job) : sum_runs<T, false>(job);
}

// Panels of B: words of four bytes of 32 rows; a multiple of sixteen words.
inline void interleave_words(const std::byte* const* rows, int count, std::int64_t words,
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

// Panels of A: lines of 64 bytes.
inline void interleave_lines(const std::byte* const* rows, int count, std::int64_t lines,
                             std::byte* panel) {
  for (int i = 0; i < count; ++i)
    for (std::int64_t line = 0; line < lines; ++line)
      _mm512_storeu_si512(panel + (line * count + i) * kLine,
                          _mm512_loadu_si512(rows[i] + line * kLine));
}

}  // namespace
}  // namespace octavo::cpu
