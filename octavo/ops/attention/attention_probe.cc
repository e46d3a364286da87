#include "octavo/ops/attention/attention_probe_internal.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/ops/attention/attention_error_model_internal.h"

namespace octavo {
namespace {

// The rms of n independent errors is within three of its own deviations of the predicted one.
double root_by_chance(double errors) { return 1.0 + 3.0 / std::sqrt(2.0 * std::max(1.0, errors)); }

}  // namespace

ProbeOutcome judge_probe(std::span<const ProbedRow> rows, const ProbeChannels& channels) {
  ProbeOutcome outcome;
  if (rows.empty() || rows[0].exact.empty()) return outcome;
  const std::size_t width = rows[0].exact.size();
  const auto count = static_cast<double>(rows.size()),
             elements = count * static_cast<double>(width);
  // Independent errors have these by chance: a row's rms within three of its own deviations, and
  // the largest of n elements about sqrt(2 ln n) deviations, one more being rare.
  const double of_row = root_by_chance(channels.of_spread),
               of_element = std::sqrt(2.0 * std::log(std::max(2.0, elements))) + 1.0;
  std::vector<double> sums(width, 0.0);
  double variance = 0.0, ratios = 0.0;  // means over rows; of a row's squares and the predicted
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
  // Where tokens are of a few kinds an error is one number times what the kinds differ by, in all
  // channels at once: in one row chance may make that small, and it is largest in other channels
  // than a row of independent errors would have it. Over all rows its size shows, which n numbers
  // tell within 1 / sqrt(2 n) of itself; twice that is allowed for.
  const double times = std::sqrt(ratios);
  if (channels.are_alike || !(times <= root_by_chance(channels.of_spread * count)))
    raise(outcome.times, times * (1.0 + 2.0 / std::sqrt(2.0 * count)));
  // The mean over rows of a channel's error is within a deviation / sqrt(rows), and the largest of
  // all channels within three and a half.
  const double by_chance = 3.5 * std::sqrt(variance / count);
  for (const double sum : sums)
    raise(outcome.offset, std::max(0.0, std::abs(sum / count) - by_chance));
  return outcome;
}

}  // namespace octavo
