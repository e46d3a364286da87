#include "octavo/base/shared_ranges.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace octavo {
namespace {

std::vector<std::int64_t> all_of(SharedRanges& ranges, int thread) {
  std::vector<std::int64_t> taken;
  for (std::int64_t one = ranges.take(thread); one >= 0; one = ranges.take(thread))
    taken.push_back(one);
  return taken;
}

TEST(SharedRanges, AThreadTakesItsOwnFirstAndThenThoseOfOthers) {
  SharedRanges ranges(8, 4);
  EXPECT_EQ(all_of(ranges, 2), (std::vector<std::int64_t>{4, 5, 6, 7, 0, 1, 2, 3}));
  EXPECT_EQ(ranges.take(0), -1);
  EXPECT_EQ(ranges.take(2), -1);
}

TEST(SharedRanges, ThreadsMeetTheSameNumbersEveryTime) {
  for (int call = 0; call < 3; ++call) {
    SharedRanges ranges(6, 3);
    EXPECT_EQ(ranges.take(1), 2);
    EXPECT_EQ(ranges.take(0), 0);
    EXPECT_EQ(ranges.take(2), 4);
    EXPECT_EQ(ranges.take(0), 1);
    EXPECT_EQ(ranges.take(0), 3);  // of thread 1, which is slow
  }
}

TEST(SharedRanges, EveryNumberIsTakenOnce) {
  for (const std::int64_t count : {0, 1, 3, 63, 64, 65, 1000}) {
    for (const int threads : {1, 2, 5, 64, 100}) {
      SharedRanges ranges(count, threads);
      std::vector<std::atomic<int>> taken(static_cast<std::size_t>(count));
      std::vector<std::thread> workers;
      for (const int thread : {0, 1, threads - 1, threads + 70})
        workers.emplace_back([&, thread] {
          for (const std::int64_t one : all_of(ranges, thread))
            ++taken[static_cast<std::size_t>(one)];
        });
      for (std::thread& worker : workers) worker.join();
      for (const std::atomic<int>& times : taken)
        ASSERT_EQ(times, 1) << count << " numbers, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace octavo
