// In which tiles a product on the tensor cores is made: the shape of the kernel, which operand its
// warpgroups split among themselves, and how scales vary within a tile. Nothing here needs a
// device.
#pragma once

#include <cstdint>

#include "octavo/backend/gemm_job.h"

namespace octavo::cuda {

// How scales vary within a tile of the result.
enum class ScaleKind : std::uint8_t {
  at_end,      // not along K: sums are multiplied once
  by_row,      // along K, one for all columns of a warpgroup
  by_column,   // along K, one for all rows of a warpgroup
  by_element,  // along K, neither
};

// One compiled kernel. Warpgroups multiply 64 rows at a time, by all columns of a tile or by a part
// of them, and in a tile of several waves go on with the next 64 rows before the next stage. Blocks
// of a cluster have the same rows and neighbouring columns, or the other way round, and each brings
// its share of what they have in common.
struct GemmShape {
  int row_groups = 3, col_groups = 1;  // of 64 rows, and of columns
  int row_passes = 1;
  int cols = 128;
  int blocks = 2;
  bool multicasts_rows = true;
  int block_cycles = 790;  // of a block of K, about, measured in the middle of large products

  [[nodiscard]] constexpr int rows() const { return row_groups * 64; }
  // Whether its last units are dealt out along K (stream_k_schedule.h). Leaving the sums of two
  // waves costs more than it wins: such a shape is taken where waves of units are nearly full.
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
// For sums that stay in the tensor cores: 128 registers of them, none to add up in.
inline constexpr GemmShape kSquare{
    .row_groups = 2, .col_groups = 1, .cols = 256, .blocks = 2, .multicasts_rows = false};
inline constexpr GemmShape kGemmShapes[] = {
    kWide, kMedium, kNarrow, kSlim, kSlimTall, kTall,
};

enum class GemmElement : std::uint8_t { fp8, bf16, f16 };

// Whether there is a kernel of a shape, one of kGemmShapes, for such elements and scales.
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

// Whether there is one scale for `side` neighbouring rows that begin at a multiple of it.
[[nodiscard]] bool same_within(const GemmOperand& operand, std::int64_t side);

// In this shape, this way round.
[[nodiscard]] GemmTiling tiling_of(const GemmJob& job, const GemmShape& shape, bool swap_ab);
// In this shape; turned where that puts all of A into one column of tiles.
[[nodiscard]] GemmTiling tiling_in(const GemmJob& job, const GemmShape& shape);
// In the one of kGemmShapes that suits, on a device of so many multiprocessors.
[[nodiscard]] GemmTiling choose_tiling(const GemmJob& job, std::int64_t processors);

}  // namespace octavo::cuda
