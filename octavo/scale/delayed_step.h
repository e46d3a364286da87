// Delayed scaling of one tensor at the end of a step, on plain memory: the definition that every
// backend runs. The public interface is quant/delayed.h.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/scale/delayed_job.h"
#include "octavo/scale/scale_parts.h"

namespace octavo {

OCTAVO_HD inline FloatRow delayed_history(const DelayedJob& job, std::int64_t tensor) {
  return {job.history.data + tensor * job.tensor_stride, job.history.stride};
}

// The count that `calls` becomes with this call: zero where it is the one that makes new scales.
OCTAVO_HD constexpr float delayed_count(float calls, std::int64_t interval) {
  const float count = calls + 1.0F;
  return count < static_cast<float>(interval) ? count : 0.0F;  // NaN: better now than never
}

// Row 1 is the oldest and row 0 the newest, so they are seen in the order 1, 2, ..., 0.
OCTAVO_HD inline float window_amax(const DelayedJob& job, const FloatRow& history) {
  if (job.policy == HistoryPolicy::most_recent) return history[0];
  float result = 0;
  for (std::int64_t i = 1; i <= job.length; ++i) {
    const float amax = history[i % job.length];
    if (!(amax > 0.0F)) continue;  // zero or NaN
    if (job.policy == HistoryPolicy::max) {
      result = amax > result ? amax : result;
    } else {
      // The first is the start; rounded after each operation, as everywhere.
      const float kept = job.decay * result, added = (1.0F - job.decay) * amax;
      result = result == 0.0F ? amax : kept + added;
    }
  }
  return result;
}

OCTAVO_HD inline void set_delayed_scale(const DelayedJob& job, std::int64_t tensor,
                                        float inv_scale) {
  job.inv_scale.set(tensor, inv_scale);
  if (job.scale.data != nullptr) job.scale.set(tensor, 1.0F / inv_scale);
}
// From what window_amax found; zero, Inf and NaN leave the scale as it is.
OCTAVO_HD inline void make_delayed_scale(const DelayedJob& job, std::int64_t tensor, float amax) {
  if (amax > 0.0F && is_finite(amax)) set_delayed_scale(job, tensor, clamped_scale(job.top / amax));
}

// One tensor. `due`: whether this call makes new scales.
OCTAVO_HD inline void delayed_step(const DelayedJob& job, std::int64_t tensor, bool due) {
  const FloatRow history = delayed_history(job, tensor);
  if (history[0] == 0.0F) return;  // it has not run
  if (due) make_delayed_scale(job, tensor, window_amax(job, history));
  const float newest = history[0];
  if (job.last.data != nullptr) job.last.set(tensor, newest);
  for (std::int64_t i = 1; i + 1 < job.length; ++i) history.set(i, history[i + 1]);
  if (job.length > 1) history.set(job.length - 1, newest);
  history.set(0, 0.0F);
}

OCTAVO_HD inline void delayed_reset(const DelayedJob& job, std::int64_t tensor) {
  const FloatRow history = delayed_history(job, tensor);
  for (std::int64_t i = 0; i < job.length; ++i) history.set(i, 0.0F);
  set_delayed_scale(job, tensor, 1.0F);
  if (job.last.data != nullptr) job.last.set(tensor, 0.0F);
}

// All of them, one after the other: what a CPU does.
inline void delayed_update_all(const DelayedJob& job) {
  bool due = true;
  if (job.calls.data != nullptr) {
    const float count = job.reset ? 0.0F : delayed_count(job.calls[0], job.interval);
    job.calls.set(0, count);
    due = count == 0.0F;
  }
  for (std::int64_t tensor = 0; tensor < job.tensors; ++tensor) {
    if (job.reset) {
      delayed_reset(job, tensor);
    } else {
      delayed_step(job, tensor, due);
    }
  }
}

}  // namespace octavo
