// Probe of a rung: it is run on the sample rows before it is chosen for all. Their measured errors
// show what magnitudes cannot: equal keys, values correlated with keys, a value that all rows round
// in the same direction.
#pragma once

#include <cstddef>
#include <span>

namespace octavo {

// One probed row.
struct ProbedRow {
  double deviation = 0.0;  // modelled standard deviation of the error of an element
  std::span<const float> exact{}, got{};
};

// Correction of the error model for a head: a modelled error e becomes `times` e + `offset`.
struct ProbeOutcome {
  double times = 1.0;   // at least one; NaN where an error is
  double offset = 0.0;  // bias of a channel, common to all rows
  [[nodiscard]] double corrected(double predicted) const { return times * predicted + offset; }
};

// Effective number of channels, as some are larger than others: of V less its mean, and of V. An
// error modelled with variance 1 in the largest channel of V has a total variance of `of_values`
// over all channels.
struct ProbeChannels {
  double of_spread = 1.0, of_values = 1.0;
  bool are_alike = false;  // keys are correlated, and errors of channels need not be independent
};
[[nodiscard]] ProbeOutcome judge_probe(std::span<const ProbedRow> rows,
                                       const ProbeChannels& channels);

}  // namespace octavo
