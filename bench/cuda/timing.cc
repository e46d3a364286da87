#include "bench/cuda/timing.h"

#include <algorithm>

#include "bench/cuda/device_side.h"

namespace octavo::bench {
namespace {

constexpr std::int64_t kFlushBytes = 256 << 20;  // several times the L2 of any Hopper
constexpr int kWarmUp = 5;

}  // namespace

Stopwatch::Stopwatch(const Lab& lab, int repeats)
    : lab_(lab),
      repeats_(repeats),
      flushed_(Lab::buffer(kFlushBytes)),
      events_(static_cast<std::size_t>(2 * repeats)) {
  for (cudaEvent_t& event : events_) must(cudaEventCreate(&event), "event");
}

Stopwatch::~Stopwatch() {
  for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
}

Timing Stopwatch::time(const std::function<void(const Exec&)>& work) const {
  const Exec exec = lab_.exec();
  for (int i = 0; i < kWarmUp; ++i) work(exec);
  must(cudaStreamSynchronize(lab_.stream()), "warm-up");
  for (int i = 0; i < repeats_; ++i) {
    must(cudaMemsetAsync(flushed_->data(), 0, kFlushBytes, lab_.stream()), "flush");
    must(cudaEventRecord(events_[static_cast<std::size_t>(2 * i)], lab_.stream()), "event");
    work(exec);
    must(cudaEventRecord(events_[static_cast<std::size_t>(2 * i + 1)], lab_.stream()), "event");
  }
  must(cudaStreamSynchronize(lab_.stream()), "work");
  std::vector<double> times;
  for (std::size_t i = 0; i < events_.size(); i += 2) {
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]), "elapsed time");
    times.push_back(double{milliseconds} * 1e3);
  }
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  return {.median_us = (times[(n - 1) / 2] + times[n / 2]) / 2,
          .low_us = times[n / 10],
          .high_us = times[n - 1 - n / 10]};
}

CopyRate copy_rate(Lab& lab, const Stopwatch& watch) {
  const Matrix from = lab.values(DType::bf16);
  const std::int64_t bytes = bytes_of(from);
  const Buffer to = Lab::buffer(bytes);
  const auto rate = [&](const std::function<void(const Exec&)>& work) {
    return 2.0 * static_cast<double>(bytes) / (watch.time(work).median_us * 1e-6);
  };
  CopyRate result;
  result.driver = rate([&](const Exec&) {
    must(cudaMemcpyAsync(to->data(), from.data, static_cast<std::size_t>(bytes),
                         cudaMemcpyDeviceToDevice, lab.stream()),
         "copy");
  });
  result.kernel = rate([&](const Exec&) {
    copy_vectors(to->data(), from.data, bytes, lab.stream());
    must(cudaGetLastError(), "copy");
  });
  return result;
}

}  // namespace octavo::bench
