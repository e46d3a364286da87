// A progress line on the terminal. Silent without a terminal, and for work that is done quickly.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace octavo::cli {

class Progress {
 public:
  Progress(std::string what, std::int64_t total_bytes);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t bytes);
  [[nodiscard]] double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  std::int64_t total_, done_ = 0;
  bool watched_, drawn_ = false;
  Clock::time_point start_, last_;
};

}  // namespace octavo::cli
