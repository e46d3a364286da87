// NaN among values, and sums of counts from several threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// Contiguous values of any dtype, or unpacked codes.
std::int64_t count_nan_span(DType dtype, const Format& format, const void* values, std::int64_t n);

// Sums from several threads.
class AtomicCounts {
 public:
  void add(const Counts& counts) {
    saturated_ += counts.saturated;
    flushed_ += counts.flushed;
    nan_ += counts.nan;
  }
  [[nodiscard]] Counts get() const {
    return {.saturated = saturated_, .flushed = flushed_, .nan = nan_};
  }

 private:
  std::atomic<std::int64_t> saturated_{0}, flushed_{0}, nan_{0};
};

}  // namespace octavo::cpu
