// Three ways, by the size of a tile and the rank in it. A rank near the top (percentiles from 90 on
// in tiles of up to 160 values) by the instruction set's kernel, several tiles at a time. Other
// small tiles by partial sorting. Large ones by radix selection, in three passes over the values.
#include "octavo/backend/cpu/quantize/rank_tiles.h"

#include <algorithm>
#include <array>
#include <bit>

#include "octavo/backend/cpu/quantize/amax_span.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/base/fp_env.h"
#include "octavo/scale/fit.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMaxSorted = 2048;  // values of a tile that are sorted on the stack
constexpr std::int64_t kTogether = 8;      // tiles that a kernel is given at a time

// Calls visit(piece, n, row, col) along an area, row by row; row and col count from its corner.
template <typename Real, typename Visit>
void for_each_piece(const TileValues<Real>& values, const Area& area, Visit&& visit) {
  alignas(64) Real stage[kStageRoom];
  for (std::int64_t row = 0; row < area.rows; ++row) {
    for (std::int64_t col = 0; col < area.cols; col += kStage) {
      const std::int64_t n = std::min(kStage, area.cols - col);
      visit(values.piece(area.row + row, area.col + col, n, stage), n, row, col);
    }
  }
}

template <typename Real>
void add_counts(const TileValues<Real>& values, const Area& area, std::uint32_t limit,
                const RankDigit& digit, std::int64_t* counts) {
  for_each_piece(values, area, [&](const Real* x, std::int64_t n, auto, auto) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t bits = counted_bits(magnitude_bits(x[i]), limit);
      if (has_prefix(digit, bits)) ++counts[digit_of(digit, bits)];
    }
  });
}

template <typename Real>
std::uint32_t selected(const TileValues<Real>& values, const Area& tile, std::uint32_t limit,
                       std::int64_t rank) {
  RankDigit digit;
  for (; digit.shift >= 0; digit.shift -= kRankDigitBits) {
    std::array<std::int64_t, kRankDigits> counts{};
    add_counts(values, tile, limit, digit, counts.data());
    digit.prefix |= digit_of_rank(counts.data(), rank) << digit.shift;
  }
  return digit.prefix;
}

// The magnitudes that count, of an area of at most kTogether small tiles, tile by tile.
template <typename Real>
void stage_magnitudes(const TileValues<Real>& values, const Area& area, std::int64_t tile_cols,
                      std::uint32_t limit, std::uint32_t* to) {
  for_each_piece(values, area,
                 [&](const Real* x, std::int64_t n, std::int64_t row, std::int64_t col) {
                   std::int64_t tile = col / tile_cols, in_tile = col % tile_cols;
                   while (n > 0) {
                     const std::int64_t count = std::min(n, tile_cols - in_tile);
                     std::uint32_t* place = to + (tile * area.rows + row) * tile_cols + in_tile;
                     for (std::int64_t i = 0; i < count; ++i)
                       place[i] = counted_bits(magnitude_bits(x[i]), limit);
                     x += count;
                     n -= count;
                     ++tile;
                     in_tile = 0;
                   }
                 });
}

template <typename Real>
std::uint32_t sorted(const TileValues<Real>& values, const Area& tile, std::uint32_t limit,
                     std::int64_t rank) {
  std::uint32_t magnitudes[kMaxSorted];
  stage_magnitudes(values, tile, tile.cols, limit, magnitudes);
  std::nth_element(magnitudes, magnitudes + rank, magnitudes + tile.rows * tile.cols);
  return magnitudes[rank];
}

template <typename Real>
class TileRanks {
 public:
  TileRanks(const Isa& isa, const QuantizeJob& job, const TileValues<Real>& values)
      : job_(job), values_(values), limit_(counted_up_to(amax_of(job.scale))), rank_(isa.rank) {}

  // Ranks of whole tiles that are all alike.
  void find(const Area& area, std::int64_t tile_cols, std::uint32_t* found) const {
    const std::int64_t tiles = area.cols / tile_cols, n = area.rows * tile_cols;
    const std::int64_t rank = percentile_rank(n, job_.percentile), from_top = n - rank;
    if (from_top > kMaxRanks || n > kMaxSorted) {
      for (std::int64_t t = 0; t < tiles; ++t) {
        const Area tile{area.row, area.col + t * tile_cols, area.rows, tile_cols};
        found[t] = n > kMaxSorted ? selected(values_, tile, limit_, rank)
                                  : sorted(values_, tile, limit_, rank);
      }
      return;
    }
    RankedTiles job{.cols = n, .rank = static_cast<int>(from_top)};
    if (area.rows == 1 && limit_ == kAllCount && values_.is_direct() &&
        (values_.dtype() == DType::f32 || values_.dtype() == DType::bf16)) {
      job.values = values_.direct(area.row, area.col);
      job.dtype = values_.dtype();
      job.tiles = tiles;
      return rank_(job, found);
    }
    alignas(64) std::uint32_t staged[kTogether * kMaxSorted];
    for (std::int64_t t = 0; t < tiles; t += kTogether) {
      job.tiles = std::min(kTogether, tiles - t);
      const Area some{area.row, area.col + t * tile_cols, area.rows, job.tiles * tile_cols};
      stage_magnitudes(values_, some, tile_cols, limit_, staged);
      job.values = staged;
      rank_(job, found + t);
    }
  }

 private:
  const QuantizeJob& job_;
  const TileValues<Real>& values_;
  std::uint32_t limit_;
  RankTiles rank_;
};

}  // namespace

bool ranks_are_amaxes(const QuantizeJob& job) {
  const auto all_largest = [&](const QuantizedMatrix& to) {
    if (!to.wanted()) return true;
    const std::int64_t n =
        tile_extent(to.tile.rows, to.codes.rows) * tile_extent(to.tile.cols, to.codes.cols);
    return percentile_rank(n, job.percentile) == n - 1;  // and so it is in smaller tiles
  };
  return all_largest(job.rowwise) && all_largest(job.columnwise);
}

template <typename Real>
void rank_tiles(const Isa& isa, const QuantizeJob& job, const TileValues<Real>& values,
                const Area& area, std::int64_t tile_cols, std::uint32_t* amax) {
  const TileRanks<Real> ranks(isa, job, values);
  const std::int64_t whole = area.cols / tile_cols, rest = area.cols - whole * tile_cols;
  std::uint32_t found[kMaxTiles];
  if (whole > 0) ranks.find({area.row, area.col, area.rows, whole * tile_cols}, tile_cols, found);
  if (rest > 0)
    ranks.find({area.row, area.col + whole * tile_cols, area.rows, rest}, rest, found + whole);
  for (std::int64_t t = 0; t < whole + (rest > 0 ? 1 : 0); ++t) {
    // A rank of mostly zeros is zero.
    if (is_searched(job.policy, job.scale, std::bit_cast<float>(amax[t])) && found[t] != 0)
      amax[t] = found[t];
  }
}

template void rank_tiles<float>(const Isa&, const QuantizeJob&, const TileValues<float>&,
                                const Area&, std::int64_t, std::uint32_t*);
template void rank_tiles<double>(const Isa&, const QuantizeJob&, const TileValues<double>&,
                                 const Area&, std::int64_t, std::uint32_t*);

void count_magnitudes(const Isa& isa, const QuantizeJob& job, const RankDigit& digit,
                      std::int64_t* counts) {
  const auto count = [&]<typename Real>() {
    const TileValues<Real> values(isa, job, false);
    add_counts(values, {0, 0, values.rows(), values.cols()}, counted_up_to(amax_of(job.scale)),
               digit, counts);
  };
  const FpEnvGuard guard;
  job.source.works_in_f64() ? count.template operator()<double>()
                            : count.template operator()<float>();
}

}  // namespace octavo::cpu
