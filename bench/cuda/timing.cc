#include "bench/cuda/timing.h"

#include <algorithm>

#include "bench/cuda/device_side.h"

namespace octavo::bench {
namespace {

// Between calls an unrelated copy runs, several times the L2 of any Hopper: a call finds L2 full of
// other lines, some of them dirty, and leaves its own to the next.
constexpr std::int64_t kFlushBytes = 256 << 20;
constexpr int kWarmUp = 5;
constexpr int kStream = 8;  // calls

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
  return time(work, work);
}

Timing Stopwatch::time(const std::function<void(const Exec&)>& work,
                       const std::function<void(const Exec&)>& other) const {
  const Exec exec = lab_.exec();
  for (int i = 0; i < kWarmUp; ++i) i % 2 == 0 ? work(exec) : other(exec);
  must(cudaStreamSynchronize(lab_.stream()), "warm-up");
  const std::vector<double> alone = times([&](int) { work(exec); }, true);
  std::vector<double> streams = times(
      [&](int) {
        for (int i = 0; i < kStream; ++i) i % 2 == 0 ? work(exec) : other(exec);
      },
      false);
  for (double& us : streams) us /= kStream;
  const std::size_t n = streams.size();
  const auto median = [](const std::vector<double>& sorted) {
    return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  };
  return {.median_us = median(streams),
          .alone_us = median(alone),
          .low_us = streams[n / 10],
          .high_us = streams[n - 1 - n / 10]};
}

std::vector<double> Stopwatch::times(const std::function<void(int)>& work, bool after_copy) const {
  auto* half = static_cast<char*>(flushed_->data());
  for (int i = 0; i < repeats_; ++i) {
    if (after_copy)
      must(cudaMemcpyAsync(half, half + kFlushBytes / 2, kFlushBytes / 2, cudaMemcpyDeviceToDevice,
                           lab_.stream()),
           "copy between");
    must(cudaEventRecord(events_[static_cast<std::size_t>(2 * i)], lab_.stream()), "event");
    work(i);
    must(cudaEventRecord(events_[static_cast<std::size_t>(2 * i + 1)], lab_.stream()), "event");
  }
  must(cudaStreamSynchronize(lab_.stream()), "work");
  std::vector<double> found;
  for (std::size_t i = 0; i < events_.size(); i += 2) {
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]), "elapsed time");
    found.push_back(double{milliseconds} * 1e3);
  }
  std::sort(found.begin(), found.end());
  return found;
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
