// The amaxes of tiles of any size, from values of any kind.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/quantize/tile_values.h"

namespace octavo::cpu {

template <typename Real>
class TileAmaxes {
 public:
  // Magnitudes beyond `limit` (amax_span.h) are ignored.
  TileAmaxes(const Isa& isa, const TileValues<Real>& values, Tile tile, std::uint32_t limit)
      : isa_(isa), values_(values), tile_(tile), limit_(limit) {}

  // Bits of the amax of each tile of a row of tiles; or of one tile, from a part of it.
  void find(const Area& area, std::uint32_t* amax) const;

 private:
  void amax_of_row(std::int64_t row, std::int64_t col, std::int64_t n, Real* stage,
                   std::uint32_t* amax) const;
  std::int64_t amax16(const void* x, std::int64_t n, std::uint32_t* amax) const;
  bool amax_of_wide_tiles(DType dtype, const void* x, std::int64_t n, std::uint32_t* amax) const;
  void amax_by_columns(const Area& area, std::int64_t col, std::int64_t n, Real* stage,
                       std::uint32_t* amax) const;

  const Isa& isa_;
  const TileValues<Real>& values_;
  Tile tile_;
  std::uint32_t limit_;
};

}  // namespace octavo::cpu
