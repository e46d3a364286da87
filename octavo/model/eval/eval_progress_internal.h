// Progress of a walk through models' weights, and its cancellation.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/progress.h"

namespace octavo::eval {

// Counts bytes of weights that all tokens have passed; what a byte takes is about the same in
// layers and head. Throws Error(io) where the callback cancels.
class EvalProgress {
 public:
  EvalProgress(std::string op, OnProgress on_progress, std::int64_t total)
      : op_(std::move(op)), on_progress_(std::move(on_progress)), total_(total) {}

  // `part` of `parts` of a piece of `bytes` are done.
  void show(std::int64_t bytes, std::int64_t part, std::int64_t parts, std::string_view current) {
    using namespace std::chrono;
    if (!on_progress_) return;
    const auto now = steady_clock::now();
    if (now - told_ < milliseconds(200) && part != parts) return;
    told_ = now;
    const double share = static_cast<double>(part) / static_cast<double>(parts);
    const Progress progress{
        .bytes_done = static_cast<std::uint64_t>(done_) +
                      static_cast<std::uint64_t>(share * static_cast<double>(bytes)),
        .bytes_total = static_cast<std::uint64_t>(total_),
        .seconds = duration<double>(now - begun_).count(),
        .current = current};
    check(on_progress_(progress), ErrorCode::io, op_, "was cancelled; ", fix_);
  }
  void finish(std::int64_t bytes) { done_ += bytes; }
  // Work of an earlier process does not count: the time that is left follows from this one's.
  void skip(std::int64_t bytes) { total_ -= bytes; }
  void say_on_cancel(std::string fix) { fix_ = std::move(fix); }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }

 private:
  std::string op_, fix_ = "nothing was written";
  OnProgress on_progress_;
  std::int64_t total_ = 0, done_ = 0;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now(), told_{};
};

}  // namespace octavo::eval
