#include "octavo/backend/cpu/quantize/tile_amaxes.h"

#include <algorithm>

#include "octavo/backend/cpu/quantize/amax_span.h"

namespace octavo::cpu {

template <typename Real>
void TileAmaxes<Real>::find(const Area& area, std::uint32_t* amax) const {
  const std::int64_t tiles = (area.cols + tile_.cols - 1) / tile_.cols;
  std::fill(amax, amax + tiles, 0u);
  alignas(64) Real stage[kStageRoom];
  const auto by_tiles = [&](std::int64_t col, std::int64_t n) {
    return tile_.cols >= 8 &&
           (col % tile_.cols == 0 || col + n <= (col / tile_.cols + 1) * tile_.cols);
  };
  // Reads the source in place, row after row, where all pieces of a row are tiles or parts of one.
  if (area.cols <= tile_.cols && by_tiles(0, area.cols)) {
    for (std::int64_t row = area.row; row < area.row + area.rows; ++row)
      for (std::int64_t col = 0; col < area.cols; col += kStage)
        amax_of_row(row, area.col + col, std::min(kStage, area.cols - col), stage, amax);
    return;
  }
  for (std::int64_t col = 0; col < area.cols; col += kStage) {
    const std::int64_t n = std::min(kStage, area.cols - col);
    if (by_tiles(col, n)) {
      for (std::int64_t row = area.row; row < area.row + area.rows; ++row)
        amax_of_row(row, area.col + col, n, stage, amax + col / tile_.cols);
    } else {
      amax_by_columns(area, col, n, stage, amax);
    }
  }
}

// Neighbouring tiles, from the start of the first, or a part of one.
template <typename Real>
void TileAmaxes<Real>::amax_of_row(std::int64_t row, std::int64_t col, std::int64_t n, Real* stage,
                                   std::uint32_t* amax) const {
  const void* direct = values_.direct(row, col);
  if (direct != nullptr && values_.dtype() == DType::bf16) {
    const auto* x = static_cast<const std::uint16_t*>(direct);
    if (amax_of_wide_tiles(DType::bf16, x, n, amax)) return;
    const std::int64_t done = amax16(direct, n, amax);
    return amax_of_tiles(x + done * 16, n - done * 16, tile_.cols, limit_, amax + done);
  }
  const Real* x = values_.piece(row, col, n, stage);
  if (sizeof(Real) == 4 && amax_of_wide_tiles(DType::f32, x, n, amax)) return;
  const std::int64_t done = direct != nullptr ? amax16(x, n, amax) : 0;
  amax_of_tiles(x + done * 16, n - done * 16, tile_.cols, limit_, amax + done);
}

template <typename Real>
std::int64_t TileAmaxes<Real>::amax16(const void* x, std::int64_t n, std::uint32_t* amax) const {
  const bool offered = isa_.amax16 != nullptr && tile_.cols == 16 && limit_ == kAllCount;
  return offered ? isa_.amax16(values_.dtype(), x, n / 16, amax) : 0;
}

// Wide enough to be worth a call for each.
template <typename Real>
bool TileAmaxes<Real>::amax_of_wide_tiles(DType dtype, const void* x, std::int64_t n,
                                          std::uint32_t* amax) const {
  constexpr std::int64_t kWide = 64;
  if (isa_.amax == nullptr || limit_ != kAllCount || tile_.cols < kWide) return false;
  const auto* from = static_cast<const std::byte*>(x);
  for (std::int64_t done = 0; done < n; done += tile_.cols, ++amax)
    *amax = larger(*amax, isa_.amax(dtype, from + done * element_bytes(dtype),
                                    std::min(tile_.cols, n - done)));
  return true;
}

// Narrow tiles: the maximum down every column first, then along the tiles.
template <typename Real>
void TileAmaxes<Real>::amax_by_columns(const Area& area, std::int64_t col, std::int64_t n,
                                       Real* stage, std::uint32_t* amax) const {
  const std::uint32_t limit = limit_;
  alignas(64) std::uint32_t most[kStage] = {};
  for (std::int64_t row = area.row; row < area.row + area.rows; ++row) {
    const Real* x = values_.piece(row, area.col + col, n, stage);
    for (std::int64_t i = 0; i < n; ++i)
      most[i] = std::max(most[i], counted_bits(magnitude_bits(x[i]), limit));
  }
  for (std::int64_t t = col / tile_.cols, i = 0; i < n; ++t) {
    const std::int64_t end = std::min(n, (t + 1) * tile_.cols - col);
    std::uint32_t tile_most = amax[t];
    for (; i < end; ++i) tile_most = std::max(tile_most, most[i]);
    amax[t] = tile_most;
  }
}

template class TileAmaxes<float>;
template class TileAmaxes<double>;

}  // namespace octavo::cpu
