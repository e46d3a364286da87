// The state of delayed scaling as plain memory, and the rule that a step moves it on by: what a
// kernel is given. quant/delayed.h is the interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/base/macros.h"

namespace octavo {

// What the window of remembered amaxes becomes. NaN in it does not count.
enum class HistoryPolicy : std::uint8_t {
  max,          // the largest: safe, and slow to forget an outlier
  most_recent,  // the newest
  ema,  // an exponential moving average from the oldest to the newest, zeros left out: smooth, and
        // a step that grows suddenly saturates
};

// f32 numbers at a distance of `stride` bytes. On a CPU they need not be aligned.
struct FloatRow {
  std::byte* data = nullptr;
  std::int64_t stride = 0;

  [[nodiscard]] OCTAVO_HD float operator[](std::int64_t i) const {
    float value = 0;
    __builtin_memcpy(&value, data + i * stride, sizeof value);
    return value;
  }
  OCTAVO_HD void set(std::int64_t i, float value) const {
    __builtin_memcpy(data + i * stride, &value, sizeof value);
  }
};

// The state of n tensors and the rule that moves it on.
struct DelayedJob {
  FloatRow history{};  // down one column: row 0 is this step, then from the oldest to the newest
  std::int64_t tensor_stride = 0;  // bytes from one column to the next
  std::int64_t length = 0, tensors = 0;
  FloatRow inv_scale{}, scale{};  // one for each tensor; scale.data may be null
  FloatRow calls{};               // one: since the last new scale; data may be null
  bool reset = false;             // instead: as before the first step

  HistoryPolicy policy = HistoryPolicy::max;
  float top = 0;  // what an amax is mapped to: the largest value over 2^margin
  float decay = 0;
  std::int64_t interval = 1;

  FloatRow last{};  // one for each: the last amax of a step; data may be null
};

}  // namespace octavo
