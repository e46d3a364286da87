// WorkLoop: a parallel loop whose threads take numbered work items in order, report progress, and
// stop together.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string_view>

#include "octavo/base/progress.h"

namespace octavo {

class WorkLoop {
 public:
  // `always`: report progress after every item, not only a few times a second.
  WorkLoop(int threads, std::uint64_t bytes_total, OnProgress on_progress, bool always = false);

  // Calls work(thread, piece) for every piece in [0, pieces). Rethrows the exception of the first
  // piece that failed, after the others have ended.
  void run(std::size_t pieces, const std::function<void(int, std::size_t)>& work);
  // Call after a piece is done. Throws when the user cancels.
  void advance(std::uint64_t bytes, std::string_view current);
  void finish(std::string_view current);  // final progress report
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] double seconds() const;

 private:
  void tell(std::string_view current);

  int threads_;
  std::uint64_t bytes_total_;
  OnProgress on_progress_;
  bool always_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point told_ = start_;
  std::atomic<std::uint64_t> bytes_done_{0};
  std::mutex telling_;
};

}  // namespace octavo
