// RecipeComparison: what several recipes would make of one checkpoint, side by side, as JSON and as
// one self-contained HTML page. Nothing is written but that.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/report/checkpoint_report.h"

namespace octavo {

struct RecipeOutcome {
  std::string recipe;
  // Why the target cannot hold the model with it; then nothing else is known.
  std::string why_not{};
  CheckpointReport report{};  // without histograms
  double seconds = 0;         // to plan, read, quantize and measure it
  // By the rules of verify that need no file: the loaders that load it, and the others with their
  // reasons. Both are empty for targets that no server reads.
  std::vector<std::string> loads{};
  std::vector<std::pair<std::string, std::string>> does_not_load{};
};

struct RecipeComparison {
  std::string title{}, source{}, target{};
  std::uint64_t bytes_before = 0;
  double seconds = 0;
  std::vector<RecipeOutcome> recipes{};
};

// The median SQNR of the tensors of a report; NaN where there are none. And what normal weights of
// the same formats have, in the middle.
[[nodiscard]] OCTAVO_API double median_sqnr(const CheckpointReport& report);
[[nodiscard]] OCTAVO_API double median_expected_sqnr(const CheckpointReport& report);

[[nodiscard]] OCTAVO_API std::string json_of(const RecipeComparison& comparison);
[[nodiscard]] OCTAVO_API std::string html_of(const RecipeComparison& comparison);

}  // namespace octavo
