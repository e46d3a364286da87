// How long work on a stream takes: CUDA events around calls, the median of many. Two ways: a stream
// of calls, as a program has them, each beginning while the one before ends (`median_us`); and each
// by itself after somebody else's copy, its beginning and end included (`alone_us`). Values are
// several times the L2, and every other call has others: none finds anything of its own there.
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
  // With two of them that take turns.
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

// The ceiling: bytes read plus bytes written in a second by the better of the driver's copy and a
// kernel of 16 bytes a thread.
struct CopyRate {
  double driver = 0, kernel = 0;
  [[nodiscard]] double best() const { return driver > kernel ? driver : kernel; }
};
CopyRate copy_rate(Lab& lab, const Stopwatch& watch);

}  // namespace octavo::bench
