// Test helpers for the thread pool: proof that threads run concurrently.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "octavo/base/thread_pool.h"

namespace octavo {

// Ends when `count` parts are inside at once, which proves as many threads; false after ten
// seconds.
class Meeting {
 public:
  explicit Meeting(int count) : count_(count) {}
  bool attend() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    ++arrived_;
    while (arrived_ < count_) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  std::atomic<int> arrived_{0};
  const int count_;
};

// True when parallel_for really runs two parts at the same time.
inline bool two_at_once() {
  Meeting meeting(2);
  std::atomic<int> met{0};
  parallel_for(2, 2, [&](int) { met += meeting.attend() ? 1 : 0; });
  return met == 2;
}

}  // namespace octavo
