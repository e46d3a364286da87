// A row of attention beside the sink of its head: what a logit without a value does to the weights
// and the log-sum-exp of its keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "octavo/backend/attention_job.h"
#include "octavo/base/macros.h"

namespace octavo {

struct BesideSink {
  double share = 1.0;     // of the keys in the softmax, between 0 and 1; NaN where poisoned
  double log2_sum = 0.0;  // of 2^score over the keys and the sink
  bool poisoned = false;  // the sink is NaN or +inf
};

// `log2_sum`: that of the keys alone, in units of log2; -inf where there are none. Differences are
// taken before exponentials, so that no sink overflows.
OCTAVO_HD inline BesideSink beside_sink(const AttentionSinks& sinks, std::int64_t head,
                                        double log2_sum) {
  if (!sinks.exist()) return {.log2_sum = log2_sum};
  const double sink = static_cast<double>(sinks.at(head)) * std::numbers::log2e;
  if (!(sink < HUGE_VAL)) return {.share = NAN, .log2_sum = NAN, .poisoned = true};
  if (sink == -HUGE_VAL) return {.log2_sum = log2_sum};
  if (log2_sum == -HUGE_VAL) return {.share = 0.0, .log2_sum = sink};
  const double above = sink - log2_sum;
  return {.share = 1.0 / (1.0 + std::exp2(above)),
          .log2_sum = std::max(sink, log2_sum) +
                      std::log1p(std::exp2(-std::abs(above))) * std::numbers::log2e};
}

}  // namespace octavo
