// MX blocks down the columns of a panel, and along its rows, from one reading of memory. Lanes are
// columns: an amax is a vertical maximum, scales need no broadcast, and only codes are transposed,
// 32 rows by 16 columns in 256-bit vectors, 5 shuffles for 32 codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/isa/avx2/mx_kernel.h"

namespace octavo::cpu {
namespace {

// Sixteen bytes of each of 32 rows, `pitch` apart, to 32 bytes of each of sixteen columns.
[[gnu::always_inline]] inline void transpose_codes(const std::uint8_t* from, std::int64_t pitch,
                                                   std::uint8_t* const columns[16]) {
  __m256i v[16], zipped[16];
  const auto sixteen = [&](std::int64_t row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * pitch));
  };
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r)
    v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(sixteen(r)), sixteen(r + 16), 1);
  // Rows zipped with those eight behind them, until they are columns.
  for (int step = 0; step < 4; ++step) {
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) {
      zipped[2 * r] = _mm256_unpacklo_epi8(v[r], v[r + 8]);
      zipped[2 * r + 1] = _mm256_unpackhi_epi8(v[r], v[r + 8]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) v[r] = zipped[r];
  }
#pragma GCC unroll 16
  for (int c = 0; c < 16; ++c) _mm256_storeu_si256(reinterpret_cast<__m256i*>(columns[c]), v[c]);
}

// As many columns as a group has elements.
template <typename L, DType kSource>
struct PanelColumns {
  using Bits = typename L::Bits;
  static constexpr std::int64_t kBytes = element_bytes(kSource), kCols = L::kGroup;
  static constexpr int kWords = static_cast<int>(kCols * kBytes / (4 * L::kLanes));  // vectors

  const MxConstants<L>& k;

  // `cols` of the results are wanted.
  [[gnu::always_inline]] void run(const std::byte* from, std::int64_t row_pitch, std::int64_t rows,
                                  std::int64_t cols, const MxPanel& panel,
                                  std::int64_t first) const {
    alignas(64) std::byte most[kCols * kBytes];
    alignas(64) std::uint8_t bytes[kCols], codes[kMxBlockSize * kCols];
    amaxes(from, row_pitch, rows, most);
    Bits amax[4], factor[4], code[4], flags[4];
    L::template load_group<kSource>(most, amax);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const TileScales<L> made = k.scales.template of<L>(amax[i]);
      factor[i] = made.factor;
      code[i] = made.code;
      flags[i] = made.poisoned;
    }
    L::store_words(L::template in_order<kSource>(L::pack_codes(code)), bytes);
    const Bits poisoned = L::template in_order<kSource>(L::pack_signs(flags));
    for (std::int64_t r = 0; r < rows; ++r) {
      Bits raw[4];
      L::template load_group<kSource>(from + r * row_pitch, raw);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) raw[i] = L::fmul(raw[i], factor[i]);
      const Bits packed =
          encode_group<L, Rounding::nearest_even, SpecialCases::none>(k.encode, raw);
      L::store_words(L::merge(poisoned, k.poison, L::template in_order<kSource>(packed)),
                     codes + r * kCols);
    }
    for (std::int64_t c = 0; c < cols; ++c)
      panel.scales[(first + c) * panel.scale_pitch] = bytes[c];
    alignas(32) std::uint8_t beyond[kMxBlockSize];
    for (std::int64_t c = 0; c < cols; c += 16) {
      std::uint8_t* columns[16];
      for (std::int64_t i = 0; i < 16; ++i)
        columns[i] = c + i < cols ? panel.codes + (first + c + i) * panel.code_pitch : beyond;
      transpose_codes(codes + c, kCols, columns);
    }
  }

 private:
  [[gnu::always_inline]] static void amaxes(const std::byte* from, std::int64_t row_pitch,
                                            std::int64_t rows, std::byte* most) {
    const Bits magnitude = L::splat(kSource == DType::bf16 ? 0x7FFF7FFFu : kF32Magnitude);
    Bits so_far[kWords];
#pragma GCC unroll 4
    for (int i = 0; i < kWords; ++i) so_far[i] = L::splat(0);
    for (std::int64_t r = 0; r < rows; ++r, from += row_pitch) {
#pragma GCC unroll 4
      for (int i = 0; i < kWords; ++i) {
        const Bits here = L::band(L::load_words(from + i * 4 * L::kLanes), magnitude);
        so_far[i] =
            kSource == DType::bf16 ? L::max_halves(so_far[i], here) : L::max(so_far[i], here);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kWords; ++i) L::store_words(so_far[i], most + i * 4 * L::kLanes);
  }
};

template <typename L, DType kSource>
void mx_panel(const MxBlocks& blocks, const MxPanel& panel) {
  using Columns = PanelColumns<L, kSource>;
  constexpr std::int64_t kBytes = Columns::kBytes, kCols = Columns::kCols;
  const auto* from = static_cast<const std::byte*>(panel.values);
  const FpEnvGuard guard;
  const MxConstants<L> k(blocks);
  if (panel.row_codes != nullptr) {
    for (std::int64_t r = 0; r < panel.rows; ++r)
      mx_row<L, kSource, false>(k, from + r * panel.row_pitch,
                                panel.row_codes + r * panel.row_code_pitch,
                                panel.row_scales + r * panel.row_scale_pitch, panel.cols);
  }
  const Columns columns{k};
  std::int64_t col = 0;
  for (; col + kCols <= panel.cols; col += kCols)
    columns.run(from + col * kBytes, panel.row_pitch, panel.rows, kCols, panel, col);
  if (col < panel.cols) {
    constexpr std::int64_t kPitch = kCols * kBytes;
    alignas(64) std::byte staged[kMxBlockSize * kPitch] = {};
    for (std::int64_t r = 0; r < panel.rows; ++r)
      std::memcpy(staged + r * kPitch, from + r * panel.row_pitch + col * kBytes,
                  static_cast<std::size_t>((panel.cols - col) * kBytes));
    columns.run(staged, kPitch, panel.rows, panel.cols - col, panel, col);
  }
}

template <typename L, DType kSource>
MxKernels choose_mx_of(const MxBlocks& blocks) {
  const bool nibbles = blocks.format.bits() == 4;
  if (blocks.searches)
    return {.rows = mx_searched_rows<L, kSource, false>,
            .packed_rows = mx_searched_rows<L, kSource, true>};
  if (blocks.ranks)
    return {.rows = mx_ranked_rows<L, kSource, false>,
            .packed_rows = nibbles ? mx_ranked_rows<L, kSource, true> : nullptr};
  return {.rows = mx_rows<L, kSource, false>,
          .packed_rows = nibbles ? mx_rows<L, kSource, true> : nullptr,
          .panel = mx_panel<L, kSource>};
}

template <typename L>
MxKernels choose_mx(const MxBlocks& blocks) {
  const Encoder encoder = make_encoder(blocks.format, {}, DType::f32);
  if (!lanes_fit(encoder) || special_cases(encoder) == SpecialCases::general) return {};
  if (blocks.source == DType::f32) return choose_mx_of<L, DType::f32>(blocks);
  if (blocks.source == DType::bf16) return choose_mx_of<L, DType::bf16>(blocks);
  return {};
}

}  // namespace
}  // namespace octavo::cpu
