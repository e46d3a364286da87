// How long work on a stream takes: CUDA events around each call, what is left of it in L2 thrown
// out before the next, the median of many.
#pragma once

#include <functional>

#include "bench/cuda/lab.h"

namespace octavo::bench {

struct Timing {
  double median_us = 0;
  double low_us = 0, high_us = 0;  // a tenth of the calls were faster, a tenth slower
};

class Stopwatch {
 public:
  Stopwatch(const Lab& lab, int repeats);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  [[nodiscard]] Timing time(const std::function<void(const Exec&)>& work) const;

 private:
  const Lab& lab_;
  int repeats_;
  Buffer flushed_;
  std::vector<cudaEvent_t> events_;
};

// The ceiling: bytes read plus bytes written in a second by the better of the driver's copy and a
// kernel of 16 bytes a thread.
struct CopyRate {
  double driver = 0, kernel = 0;
  [[nodiscard]] double best() const { return driver > kernel ? driver : kernel; }
};
CopyRate copy_rate(Lab& lab, const Stopwatch& watch);

}  // namespace octavo::bench
