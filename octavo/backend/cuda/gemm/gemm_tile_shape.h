// Tile shape of a tensor-core GEMM: rows and columns per block, warpgroups, cluster size, swap-AB,
// and how scales vary within a tile. Host code that needs no device.
#pragma once

#include <cstdint>

#include "octavo/backend/gemm_job.h"

namespace octavo::cuda {

// How scales vary within a tile of the result.
enum class ScaleKind : std::uint8_t {
  at_end,      // constant along K: applied to sums in the epilogue
  by_row,      // change along K; one for all columns of a warpgroup
  by_column,   // change along K; one for all rows of a warpgroup
  by_element,  // change along K, by row and by column
};

// Tile shape of one compiled kernel. A consumer warpgroup multiplies 64 rows at a time by all
// columns of a tile or by a part of them; with several row passes it multiplies the next 64 rows of
// the same stage before it goes to the next stage. Blocks of a cluster have the same rows and
// neighbouring columns, or the reverse, and each block multicasts its slice of the shared operand.
struct GemmShape {
  int row_groups = 3, col_groups = 1;  // groups of 64 rows, and of columns
  int row_passes = 1;
  int cols = 128;
  int blocks = 2;
  bool multicasts_rows = true;
  int block_cycles = 790;  // per K block, approximate; measured in the main loop of large GEMMs

  [[nodiscard]] constexpr int rows() const { return row_groups * 64; }
  // Whether its last units are split along K (stream_k_schedule.h). With two row passes, handing
  // over partial sums costs more than it gains: such a shape is chosen where waves of units are
  // nearly full.
  [[nodiscard]] constexpr bool uses_stream_k() const { return row_passes == 1; }
  [[nodiscard]] constexpr int warpgroups() const { return row_groups / row_passes * col_groups; }
  [[nodiscard]] constexpr int group_cols() const { return cols / col_groups; }
  [[nodiscard]] constexpr int unit_rows() const { return rows() * (multicasts_rows ? 1 : blocks); }
  [[nodiscard]] constexpr int unit_cols() const { return cols * (multicasts_rows ? blocks : 1); }
  constexpr bool operator==(const GemmShape&) const = default;
};

inline constexpr GemmShape kWide{}, kTall{.row_groups = 4, .row_passes = 2, .block_cycles = 1075},
    kMedium{.row_groups = 2, .block_cycles = 580},
    kNarrow{.row_groups = 1,
            .col_groups = 2,
            .blocks = 1,
            .multicasts_rows = false,
            .block_cycles = 400},
    kSlim{.row_groups = 1, .cols = 64, .blocks = 1, .multicasts_rows = false, .block_cycles = 400},
    kSlimTall{
        .row_groups = 3, .cols = 64, .blocks = 1, .multicasts_rows = false, .block_cycles = 400};
// For kernels without promotion: 128 registers of wgmma accumulators, and no second set.
inline constexpr GemmShape kSquare{
    .row_groups = 2, .col_groups = 1, .cols = 256, .blocks = 2, .multicasts_rows = false};
inline constexpr GemmShape kGemmShapes[] = {
    kWide, kMedium, kNarrow, kSlim, kSlimTall, kTall,
};

enum class GemmElement : std::uint8_t { fp8, bf16, f16 };

// Whether there is a kernel of a shape, one of kGemmShapes, for these elements and scales.
constexpr bool has_kernel(GemmElement element, const GemmShape& shape, ScaleKind scales) {
  if (element == GemmElement::f16) return scales == ScaleKind::at_end && shape.row_passes == 1;
  return shape.row_passes == 1 || (element == GemmElement::fp8 &&
                                   (scales == ScaleKind::at_end || scales == ScaleKind::by_row));
}

struct GemmTiling {
  GemmShape shape{};
  bool swap_ab = false;  // rows of the plan are those of B
  ScaleKind scales = ScaleKind::at_end;
};

// Whether every `side` rows from a multiple of `side` on share a scale.
[[nodiscard]] bool same_within(const GemmOperand& operand, std::int64_t side);

// With this shape and this swap_ab.
[[nodiscard]] GemmTiling tiling_of(const GemmJob& job, const GemmShape& shape, bool swap_ab);
// With this shape; swap-AB where that puts all of A into one column of tiles.
[[nodiscard]] GemmTiling tiling_in(const GemmJob& job, const GemmShape& shape);
// With the best of kGemmShapes for a device with `processors` SMs.
[[nodiscard]] GemmTiling choose_tiling(const GemmJob& job, std::int64_t processors);

}  // namespace octavo::cuda
