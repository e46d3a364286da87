// Work-stealing ranges of indices 0, 1, ...: a thread takes indices from its own contiguous range
// first, one at a time, then steals from the ranges of others. A thread gets the same indices call
// after call (cache affinity), and a slow one does not stall the rest (load balancing).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace octavo {

class SharedRanges {
 public:
  SharedRanges(std::int64_t count, int threads)
      : ranges_(static_cast<int>(
            std::clamp<std::int64_t>(std::min<std::int64_t>(threads, count), 1, kMaxRanges))) {
    for (int i = 0; i < ranges_; ++i) {
      range_[i].next.store(count * i / ranges_, std::memory_order_relaxed);
      range_[i].end = count * (i + 1) / ranges_;
    }
  }
  SharedRanges(const SharedRanges&) = delete;
  SharedRanges& operator=(const SharedRanges&) = delete;

  // The next index, claimed by this thread alone; -1 when all ranges are exhausted. Beyond
  // kMaxRanges threads, several share a range.
  std::int64_t take(int thread) {
    for (int i = 0; i < ranges_; ++i) {
      Range& range = range_[(thread + i) % ranges_];
      // A plain load first: stealing threads do not bounce the cache line of an empty range.
      if (range.next.load(std::memory_order_relaxed) >= range.end) continue;
      const std::int64_t taken = range.next.fetch_add(1, std::memory_order_relaxed);
      if (taken < range.end) return taken;
    }
    return -1;
  }

 private:
  static constexpr int kMaxRanges = 64;  // 4 KiB, on the stack of a caller
  struct alignas(64) Range {             // a cache line each
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  Range range_[kMaxRanges];
  int ranges_;
};

}  // namespace octavo
