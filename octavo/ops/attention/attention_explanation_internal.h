// Why a rung was taken, in the words of a report.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/ops/attention/attention.h"

namespace octavo {

// What is known of a choice besides what it says itself.
struct ChoiceFacts {
  std::string tried{};        // rungs above the tolerance, each with its prediction
  bool is_unsampled = false;  // no row was looked at: cheaper rungs are not likely to do
  bool is_decode = false;     // no row was looked at: there are too few
  bool is_lost = false;       // rounding the output is not within the tolerance by itself,
  double rounding = 0.0;      // being off by so much
  DType out = DType::f32;
  std::int64_t values_step = 1;  // one row of V in so many was looked at,
  bool knows_values = true;      // and not all of those are zeros
};
std::string explanation_for(const AttentionChoice& choice, const ChoiceFacts& facts);

// There are scores so large that f32 has too little of their fraction.
std::string explanation_for_large_scores(double tolerance, double score);

}  // namespace octavo
