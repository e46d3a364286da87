// Stream-K schedule: every K block of every unit is computed once, in order, and no cluster waits
// for one that comes later.
#include "octavo/backend/cuda/gemm/stream_k_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace octavo::cuda {
namespace {

struct Sizes {
  int rows, cols, k_blocks, clusters;
};

std::string to_text(const Sizes& sizes) {
  return std::to_string(sizes.rows) + " x " + std::to_string(sizes.cols) + " x " +
         std::to_string(sizes.k_blocks) + " on " + std::to_string(sizes.clusters);
}

class StreamKScheduleTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(StreamKScheduleTest, EveryBlockOnceAndInOrder) {
  const auto [rows, cols, k_blocks, clusters] = GetParam();
  const StreamKSchedule schedule = make_schedule(rows, cols, k_blocks, clusters);
  ASSERT_LE(schedule.clusters, clusters);
  // For each unit: its K blocks with their clusters, in the order of clusters.
  std::map<std::pair<int, int>, std::vector<std::pair<int, int>>> parts;
  std::int64_t least = std::int64_t{rows} * cols * k_blocks, most = 0;
  for (int cluster = 0; cluster < schedule.clusters; ++cluster) {
    std::int64_t blocks = 0;
    int leaves = 0;
    const int work_tiles = schedule.work_tiles(cluster);
    for (int i = 0; i < work_tiles; ++i) {
      const WorkTile work_tile = schedule.work_tile(cluster, i);
      ASSERT_LT(work_tile.first, work_tile.end) << to_text(GetParam());
      ASSERT_TRUE(work_tile.unit_row >= 0 && work_tile.unit_row < rows && work_tile.unit_col >= 0 &&
                  work_tile.unit_col < cols);
      EXPECT_EQ(work_tile.continues, work_tile.first > 0);
      EXPECT_EQ(work_tile.is_partial, work_tile.end < k_blocks);
      EXPECT_FALSE(work_tile.continues &&
                   work_tile.is_partial);  // no work tile both waits and is waited for
      leaves += work_tile.is_partial ? 1 : 0;
      if (work_tile.continues) {
        // The part before is computed by the cluster before, after no more K blocks than are
        // computed here.
        EXPECT_EQ(i, work_tiles - 1);
        std::int64_t there = 0;
        int j = 0;
        while (!schedule.work_tile(cluster - 1, j).is_partial) {
          there +=
              schedule.work_tile(cluster - 1, j).end - schedule.work_tile(cluster - 1, j).first;
          ASSERT_LT(++j, schedule.work_tiles(cluster - 1));
        }
        const WorkTile before = schedule.work_tile(cluster - 1, j);
        EXPECT_TRUE(before.end == work_tile.first && before.unit_row == work_tile.unit_row &&
                    before.unit_col == work_tile.unit_col);
        EXPECT_GE(blocks, there + before.end) << to_text(GetParam());
      }
      parts[{work_tile.unit_row, work_tile.unit_col}].push_back({work_tile.first, work_tile.end});
      blocks += work_tile.end - work_tile.first;
    }
    EXPECT_EQ(leaves, schedule.hands_over_sums(cluster) ? 1 : 0);
    least = std::min(least, blocks);
    most = std::max(most, blocks);
  }
  EXPECT_EQ(parts.size(), static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
  for (auto& [unit, pieces] : parts) {
    std::sort(pieces.begin(), pieces.end());
    int at = 0;
    for (const auto& [first, end] : pieces) {
      EXPECT_EQ(first, at);
      at = end;
    }
    EXPECT_EQ(at, k_blocks);
  }
  // Even: with stream-K no cluster has more than one K block more than another.
  if (schedule.stream_k_units > 0) {
    EXPECT_LE(most - least, 1) << to_text(GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StreamKScheduleTest,
    ::testing::Values(Sizes{1, 1, 1, 66}, Sizes{5, 7, 3, 66}, Sizes{22, 16, 32, 66},
                      Sizes{11, 16, 56, 66}, Sizes{22, 28, 16, 66}, Sizes{128, 16, 12, 66},
                      Sizes{384, 1, 12, 132}, Sizes{43, 32, 64, 66}, Sizes{13, 11, 5, 3},
                      Sizes{67, 1, 4, 66}, Sizes{131, 1, 9, 66}, Sizes{9, 9, 7, 2},
                      Sizes{10, 10, 4, 1},
                      // More K blocks than 31 bits count, so stream-K is not used.
                      Sizes{12, 16, (1 << 24) - 1, 132}));

}  // namespace
}  // namespace octavo::cuda
