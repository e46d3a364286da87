// Delayed scaling: this step's scale comes from the amax history of earlier steps, so a quantizer
// reads a tensor once. The caller owns the state; only these functions change it between steps. The
// rules are Transformer Engine's.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/format/named_formats.h"
#include "octavo/scale/delayed_job.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct DelayedRule {
  Format format = e4m3fn;  // whose largest value an amax is mapped to
  HistoryPolicy policy = HistoryPolicy::max;
  int margin = 0;             // the largest value is divided by 2^margin: room for growth
  float decay = 0.9F;         // ema: the weight of the history, in (0, 1)
  std::int64_t interval = 1;  // a new scale every so many calls; the history moves on every one
};

inline constexpr std::int64_t kMaxHistory = 1024;
inline constexpr std::int64_t kMaxInterval = std::int64_t{1} << 24;  // f32 counts exactly up to it

// f32 of any strides, for n tensors, all on one device. Row 0 of the history is where this step's
// amax is gathered: each is the `amax` of a quantizer. Rows 1 to length - 1 run from the oldest to
// the newest.
struct DelayedState {
  View history;    // [length, n], length 1 to kMaxHistory
  View inv_scale;  // [n]: what values are multiplied by
  // A view without memory and dimensions is not there.
  View scale;   // [n]: its reciprocal, rounded, if it is needed
  View calls;   // one: calls since the last new scale; must be there if interval > 1
  View last{};  // [n]: the last amax of a step, kept beyond it, if it is needed
};

// As before the first step: no history, scales of one.
OCTAVO_API void reset_delayed(const DelayedState& state, void* stream = nullptr);

// The end of a step. For each tensor whose amax in row 0 is not zero (the others have not run, and
// stay as they are): the window, row 0 included, becomes one amax; inv_scale becomes largest value
// / 2^margin / amax, at most the largest f32 and at least 2^-126 (so that its reciprocal is
// finite), and stays what it is where amax is zero, Inf or NaN; then the oldest amax is forgotten,
// this step's becomes the newest and row 0 becomes zero. Everything is checked before anything is
// written. Where several processes share a tensor, reduce row 0 by maximum first. On a GPU both
// calls are queued on the stream without synchronization and may be captured into a graph.
OCTAVO_API void update_delayed(const DelayedState& state, const DelayedRule& rule,
                               void* stream = nullptr);

// "max", "most_recent", "ema".
[[nodiscard]] OCTAVO_API std::string_view name_of(HistoryPolicy policy);
[[nodiscard]] OCTAVO_API HistoryPolicy parse_history_policy(std::string_view name);

}  // namespace octavo
