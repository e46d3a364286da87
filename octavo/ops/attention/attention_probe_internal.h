// A rung is tried on a few rows before it is taken for all: what they are off by shows what no
// magnitude does, equal keys, values that go with keys, a value that every row rounds alike.
#pragma once

#include <cstddef>
#include <span>

namespace octavo {

// One row that was tried.
struct ProbedRow {
  double deviation = 0.0;  // predicted, of an element
  std::span<const float> exact{}, got{};
};

// What was found, of a head. An error that was predicted to be e is `times` e + `offset`.
struct ProbeOutcome {
  double times = 1.0;   // at least one; NaN where an error is
  double offset = 0.0;  // of a channel, the same in all rows
  [[nodiscard]] double corrected(double predicted) const { return times * predicted + offset; }
};

// How many channels there are in effect, some being larger than others: of what V has besides its
// mean, and of V. An error that is predicted to have a variance of one where V is largest has
// `of_values` in all channels.
struct ProbeChannels {
  double of_spread = 1.0, of_values = 1.0;
  bool are_alike = false;  // keys act together, and errors of channels need not be independent
};
[[nodiscard]] ProbeOutcome judge_probe(std::span<const ProbedRow> rows,
                                       const ProbeChannels& channels);

}  // namespace octavo
