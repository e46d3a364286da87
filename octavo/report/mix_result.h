// MixResult: how a mixed plan was chosen: the frontier of bits against error, the mix that was
// taken, and what each part of the model became. As JSON, and as a section of the report's page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/base/macros.h"

namespace octavo {

// A mix, or a recipe for all that it fits: what it takes and how far results are off.
struct MixPoint {
  std::string recipe{};        // of a uniform one; empty: a mix
  double bits_per_weight = 0;  // of all weights that could be quantized, with their scales
  std::uint64_t bytes = 0;     // of the whole output
  // Mean over matrices of the relative squared error, as MixResult::measure says.
  double error = 0;
  std::vector<std::int64_t> elements{};  // by recipe, as MixResult::recipes
};

// What gets one recipe: a matrix, or those that servers load as one.
struct MixUnit {
  std::string name{};  // of its first module: untrusted
  std::int64_t elements = 0;
  std::string recipe{};
  double bits_per_weight = 0;
  double error = 0;                    // the sum over its matrices
  std::vector<std::string> recipes{};  // the others that it could have had, and their errors
  std::vector<double> errors{};
};

struct MixResult {
  std::string budget{};                // "4.5 bits per weight", "at most 24.0 GiB"
  std::string measure{};               // what errors are of, in words
  std::vector<std::string> recipes{};  // "none" last
  std::vector<std::pair<std::string, std::string>> impossible{};  // candidates, and why
  // Of those that one folder cannot have together, the others: left out of the mix.
  std::vector<std::string> left_out{};
  std::vector<MixPoint> frontier{};  // from the fewest bits on; of many points some
  std::vector<MixPoint> uniform{};
  MixPoint chosen{};
  std::vector<MixUnit> units{};  // in the order of the model
  double seconds = 0;            // to measure and choose
};

// 10 log10 of one over the error: the decibels that reports have.
[[nodiscard]] OCTAVO_API double sqnr_of(const MixPoint& point);

// As JSON text.
[[nodiscard]] OCTAVO_API std::string json_of(const MixResult& mix);

}  // namespace octavo
