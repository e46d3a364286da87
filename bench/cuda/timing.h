// Times work on a stream: CUDA events around calls, the median of many. Two ways: back-to-back
// calls, as in a program, each beginning while the one before ends (`median_us`); and each by
// itself after an unrelated copy, its beginning and end included (`alone_us`). Values are several
// times the L2, and calls alternate between sets of them: none finds its own data in L2.
#pragma once

#include <functional>

#include "bench/cuda/lab.h"

namespace octavo::bench {

struct Timing {
  double median_us = 0;
  double alone_us = 0;
  double low_us = 0, high_us = 0;  // a tenth of the calls were faster, a tenth slower
};

class Stopwatch {
 public:
  Stopwatch(const Lab& lab, int repeats);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  [[nodiscard]] Timing time(const std::function<void(const Exec&)>& work) const;
  // With two that alternate.
  [[nodiscard]] Timing time(const std::function<void(const Exec&)>& work,
                            const std::function<void(const Exec&)>& other) const;

 private:
  [[nodiscard]] std::vector<double> times(const std::function<void(int)>& work,
                                          bool after_copy) const;

  const Lab& lab_;
  int repeats_;
  Buffer flushed_;
  std::vector<cudaEvent_t> events_;
};

// The ceiling: bytes read plus bytes written per second, by the better of the driver's copy and a
// kernel with 16 bytes per thread.
struct CopyRate {
  double driver = 0, kernel = 0;
  [[nodiscard]] double best() const { return driver > kernel ? driver : kernel; }
};
CopyRate copy_rate(Lab& lab, const Stopwatch& watch);

}  // namespace octavo::bench
