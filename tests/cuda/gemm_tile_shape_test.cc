// The choice of tile shapes. No device is needed.
#include "octavo/backend/cuda/gemm/gemm_tile_shape.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <vector>

#include "octavo/backend/cuda/gemm/stream_k_schedule.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {

// For messages of failed comparisons.
void PrintTo(const GemmShape& shape, std::ostream* out) {
  *out << shape.rows() << " x " << shape.cols << ", " << shape.blocks << " in a cluster";
}
void PrintTo(ScaleKind kind, std::ostream* out) { *out << static_cast<int>(kind); }

namespace {

constexpr std::int64_t kProcessors = 132, kDepth = 1024;
constexpr Tile kTensor{0, 0}, kRow{1, 0}, kRun{1, 128}, kSquares{128, 128}, kLow{64, 128};

GemmOperand operand(std::int64_t rows, Tile tile) {
  GemmOperand made;
  made.quantized.codes = {.data = reinterpret_cast<void*>(std::uintptr_t{0x1000}),
                          .dtype = DType::code,
                          .format = e4m3fn,
                          .rows = rows,
                          .cols = kDepth,
                          .row_pitch = kDepth,
                          .col_stride = 1};
  made.quantized.tile = tile;
  return made;
}
GemmJob job_of(std::int64_t m, std::int64_t n, Tile a = kRow, Tile b = kRow) {
  return {.a = operand(m, a), .b = operand(n, b), .out = {.rows = m, .cols = n}};
}
GemmTiling chosen(std::int64_t m, std::int64_t n, Tile a = kRow, Tile b = kRow) {
  return choose_tiling(job_of(m, n, a, b), kProcessors);
}

void expect(const GemmTiling& got, const GemmShape& shape, bool swap_ab) {
  EXPECT_EQ(got.shape, shape);
  EXPECT_EQ(got.swap_ab, swap_ab);
}

TEST(GemmTileShape, SmallMOrNBecomesTheColumns) {
  expect(chosen(1, 4096), kSlim, true);
  expect(chosen(64, 4096), kSlim, true);
  expect(chosen(4096, 64), kSlim, false);
  expect(chosen(64, 64), kSlim, true);
  expect(chosen(65, 4096), kNarrow, true);
  expect(chosen(128, 100'000), kNarrow, true);
  expect(chosen(100'000, 128), kNarrow, false);
  // A tile of 64 rows for every SM, and one too many.
  expect(chosen(20, 132 * 64), kSlim, true);
  expect(chosen(20, 132 * 64 + 1), kSlimTall, true);
  expect(chosen(132 * 64 + 1, 20), kSlimTall, false);
}

TEST(GemmTileShape, SmallOnesWhereAllRunAtOneTime) {
  expect(chosen(129, 129), kNarrow, false);
  expect(chosen(1024, 1024), kNarrow, false);         // 16 x 8
  expect(chosen(192, 44 * 128), kNarrow, false);      // 3 x 44 is 132
  expect(chosen(192, 44 * 128 + 1), kMedium, false);  // neither 3 x 45 nor 89 x 2
  EXPECT_NE(chosen(1024, 1152).shape, kNarrow);       // 16 x 9, or 18 x 8
  // Only with swap-AB are they few enough: 33 x 4, but 8 x 17.
  expect(chosen(512, 33 * 64), kNarrow, true);
}

TEST(GemmTileShape, LargeOnesByWaveQuantization) {
  expect(chosen(1024, 2048), kMedium, false);  // 8 x 8 in one wave, as 6 x 8 wide ones would be
  // Four waves of 1075 cycles, 3.9 of which are full; not 5.3 of 790 plus the cost of stream-K, nor
  // 7.8 of 580.
  expect(chosen(4096, 4096), kTall, false);
  expect(chosen(4096, 7168), kTall, false);   // 6.8 waves, or 9.3
  expect(chosen(4096, 24576), kWide, false);  // 23.3 waves, or 32.0
  expect(chosen(8192, 8192), kWide, false);   // 15.5 waves, or 20.8
  // 192 x 256 divides this one into 11 x 8 straight, and 11 x 9 with swap-AB.
  expect(chosen(2112, 2048), kWide, false);
  expect(chosen(2048, 2112), kWide, true);
}

TEST(GemmTileShape, SwapsAbWhereScalesWantIt) {
  for (const std::int64_t size : {512, 1400, 4096}) {
    const GemmTiling straight = chosen(size, size, kRun, kSquares),
                     swap_ab = chosen(size, size, kSquares, kRun);
    EXPECT_FALSE(straight.swap_ab);
    EXPECT_TRUE(swap_ab.swap_ab);
    EXPECT_EQ(straight.scales, ScaleKind::by_row);
    EXPECT_EQ(swap_ab.scales, ScaleKind::by_row);
    EXPECT_EQ(straight.shape, swap_ab.shape);
    EXPECT_EQ(chosen(size, size, kRun, kRun).scales, ScaleKind::by_element);
    EXPECT_EQ(chosen(size, size, kSquares, kSquares).scales, ScaleKind::by_row);
  }
  // Small M decides before the scales do.
  EXPECT_EQ(chosen(40, 4096, kRun, kSquares).scales, ScaleKind::by_column);
  expect(chosen(40, 4096, kRun, kSquares), kSlim, true);
}

// Two row passes are for FP8 with scales at the end or by row.
TEST(GemmTileShape, TwoRowPassesWhereThereIsAKernel) {
  expect(chosen(4096, 4096, kRun, kSquares), kTall, false);
  expect(chosen(4096, 4096, kSquares, kRun), kTall, true);
  expect(chosen(4096, 4096, kRun, kRun), kWide, false);
  GemmJob wide = job_of(4096, 4096, kRow, kRow);
  for (GemmOperand* operand : {&wide.a, &wide.b}) operand->quantized.codes.dtype = DType::bf16;
  expect(choose_tiling(wide, kProcessors), kWide, false);
  EXPECT_FALSE(kTall.uses_stream_k());
  EXPECT_EQ(make_schedule(16, 16, 32, 66, kTall.uses_stream_k()).stream_k_units, 0);
  EXPECT_GT(make_schedule(16, 16, 32, 66).stream_k_units, 0);
}

TEST(GemmTileShape, KindsOfScales) {
  const auto kind = [](Tile a, Tile b, const GemmShape& shape = kWide, bool swap_ab = false) {
    return tiling_of(job_of(1000, 1000, a, b), shape, swap_ab).scales;
  };
  for (const bool swap_ab : {false, true}) {
    EXPECT_EQ(kind(kTensor, kTensor, kWide, swap_ab), ScaleKind::at_end);
    EXPECT_EQ(kind(kTensor, kRow, kWide, swap_ab), ScaleKind::at_end);
    EXPECT_EQ(kind(kRun, kRun, kWide, swap_ab), ScaleKind::by_element);
    EXPECT_EQ(kind(kRun, kRow, kWide, swap_ab), ScaleKind::by_element);
  }
  EXPECT_EQ(kind(kRun, kTensor), ScaleKind::by_row);
  EXPECT_EQ(kind(kRun, kTensor, kWide, true), ScaleKind::by_column);
  EXPECT_EQ(kind(kTensor, kSquares), ScaleKind::by_row);
  // Squares of 64: as many columns as half of a narrow tile has, and as many rows as a warpgroup.
  EXPECT_EQ(kind(kRun, kLow), ScaleKind::by_element);
  EXPECT_EQ(kind(kRun, kLow, kNarrow), ScaleKind::by_row);
  EXPECT_EQ(kind(kRun, kLow, kSlim), ScaleKind::by_row);
  EXPECT_EQ(kind(kLow, kRun), ScaleKind::by_column);
  // A tile of scales that has all of K, or all rows, whatever its size.
  EXPECT_EQ(kind({1, kDepth}, {1, 2 * kDepth}), ScaleKind::at_end);
  EXPECT_EQ(kind(kRun, {1000, 128}), ScaleKind::by_row);
  EXPECT_EQ(kind(kRun, {999, 128}), ScaleKind::by_element);
}

TEST(GemmTileShape, GroupsAreWideOrSmallM) {
  const auto grouped = [](const std::vector<std::int64_t>& rows, std::int64_t n) {
    std::vector<GemmGroup> groups;
    std::int64_t all = 0;
    for (const std::int64_t count : rows) {
      groups.push_back({.a_row = all, .rows = count, .out_row = all});
      all += count;
    }
    GemmJob job = job_of(all, n * static_cast<std::int64_t>(rows.size()));
    job.out.cols = n;
    job.groups = groups.data();
    job.group_count = static_cast<std::int64_t>(groups.size());
    return choose_tiling(job, kProcessors);
  };
  EXPECT_EQ(grouped({200, 200, 200}, 300).shape, kWide);  // narrow, if it were alone
  EXPECT_EQ(chosen(200, 300).shape, kNarrow);
  EXPECT_EQ(grouped({1000, 1000}, 2048).shape, kWide);
  // The mean M of groups that have rows: 50, then 101.
  expect(grouped({1, 99, 0, 0}, 1000), kSlim, true);
  expect(grouped({1, 200, 0, 0}, 1000), kNarrow, true);
  // Tiles of all groups count: 9 groups of 16.
  expect(grouped(std::vector<std::int64_t>(8, 5), 1024), kSlim, true);
  expect(grouped(std::vector<std::int64_t>(9, 5), 1024), kSlimTall, true);
  expect(grouped({0, 0}, 1024), kSlim, true);  // nothing to do
}

TEST(GemmTileShape, AGivenShapeSwapsAbForOneColumnOfTiles) {
  for (const GemmShape& shape : kGemmShapes) {
    expect(tiling_in(job_of(shape.cols, 1000), shape), shape, true);
    expect(tiling_in(job_of(shape.cols + 1, 1000), shape), shape, false);
    expect(tiling_in(job_of(shape.cols, 10), shape), shape, false);
  }
}

}  // namespace
}  // namespace octavo::cuda
