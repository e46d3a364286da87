// Numbers 0, 1, ... that threads take one at a time: each from a range of its own first, then from
// those of others (work stealing). A thread that does the same work call after call meets the same
// numbers, and finds in its caches what belongs to them; a delayed thread holds nobody up.
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

  // A number that nobody else gets, or -1 when there is none. Threads whose numbers are the same
  // modulo the ranges share one.
  std::int64_t take(int thread) {
    for (int i = 0; i < ranges_; ++i) {
      Range& range = range_[(thread + i) % ranges_];
      // Not counted on for ever by threads that find it empty.
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
