// The text that explains the choice of a rung in an AttentionReport.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/ops/attention/attention.h"

namespace octavo {

// Facts of a choice that AttentionChoice does not hold.
struct ChoiceFacts {
  std::string tried{};        // rungs over the tolerance, each with its modelled error
  bool is_unsampled = false;  // no row was sampled: cheaper rungs would rarely do
  bool is_decode = false;     // no row was sampled: decode attention has too few rows
  bool is_lost = false;       // rounding the output alone exceeds the tolerance,
  double rounding = 0.0;      // by this much
  DType out = DType::f32;
  std::int64_t values_step = 1;  // the statistics of V are of one row in this many,
  bool knows_values = true;      // and not all of those are zeros
};
std::string explanation_for(const AttentionChoice& choice, const ChoiceFacts& facts);

// For scores so large that f32 has too few fraction bits for them.
std::string explanation_for_large_scores(double tolerance, double score);

}  // namespace octavo
