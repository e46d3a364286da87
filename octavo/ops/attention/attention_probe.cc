#include "octavo/ops/attention/attention_probe_internal.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/ops/attention/attention_error_model_internal.h"

namespace octavo {
namespace {

// The rms of n independent errors is within three of its standard deviations of the modelled one.
double root_by_chance(double errors) { return 1.0 + 3.0 / std::sqrt(2.0 * std::max(1.0, errors)); }

}  // namespace

ProbeOutcome judge_probe(std::span<const ProbedRow> rows, const ProbeChannels& channels) {
  ProbeOutcome outcome;
  if (rows.empty() || rows[0].exact.empty()) return outcome;
  const std::size_t width = rows[0].exact.size();
  const auto count = static_cast<double>(rows.size()),
             elements = count * static_cast<double>(width);
  // Limits for independent errors: a row's rms is within three of its standard deviations, and the
  // largest of n elements is about sqrt(2 ln n) standard deviations; one more is rare.
  const double of_row = root_by_chance(channels.of_spread),
               of_element = std::sqrt(2.0 * std::log(std::max(2.0, elements))) + 1.0;
  std::vector<double> sums(width, 0.0);
  double variance = 0.0, ratios = 0.0;  // means over rows: of the modelled variance; of a row's
                                        // squares over the modelled ones
  for (const ProbedRow& row : rows) {
    double squares = 0.0, largest = 0.0;
    for (std::size_t e = 0; e < width; ++e) {
      const double error = static_cast<double>(row.got[e]) - static_cast<double>(row.exact[e]);
      squares += error * error;
      raise(largest, std::abs(error));
      sums[e] += error;
    }
    variance += row.deviation * row.deviation / count;
    if (squares == 0.0) continue;
    ratios += squares / (row.deviation * row.deviation * channels.of_values * count);
    raise(outcome.times,
          std::sqrt(squares / static_cast<double>(width)) / (row.deviation * of_row));
    raise(outcome.times, largest / (row.deviation * of_element));
  }
  // Where tokens are of a few kinds, an error is one random number times the difference of the
  // kinds, in all channels at once: in one row chance may make it small, and its largest channels
  // differ from those of independent errors. All rows together show its size, which n numbers
  // determine to within a relative 1 / sqrt(2 n); twice that is allowed.
  const double times = std::sqrt(ratios);
  if (channels.are_alike || !(times <= root_by_chance(channels.of_spread * count)))
    raise(outcome.times, times * (1.0 + 2.0 / std::sqrt(2.0 * count)));
  // The mean over rows of a channel's error has a standard deviation of deviation / sqrt(rows); the
  // largest of all channels is within three and a half of those.
  const double by_chance = 3.5 * std::sqrt(variance / count);
  for (const double sum : sums)
    raise(outcome.offset, std::max(0.0, std::abs(sum / count) - by_chance));
  return outcome;
}

}  // namespace octavo
