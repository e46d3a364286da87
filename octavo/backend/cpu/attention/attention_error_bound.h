// Rows whose scores or weights were rounded, looked at when their weights are known: may that have
// moved the output too far? docs/numerics/attention.md derives it.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "octavo/backend/cpu/attention/attention.h"

namespace octavo::cpu {

// All rows that are asked for; and afterwards those of them that came out doubtful.
enum class RowsOfPass { all, uncertain };

struct RowWeights {
  double largest;         // weight
  double weight_squares;  // of all weights, their sum; or infinity, where that is not known
  double score;           // the largest magnitude of scores that count, in units of ln
};

// What a row has when it is done, as a softmax leaves it (SoftmaxJob); scores are in units of log2.
struct RowState {
  float top, base, sum, weight_squares;
  float score;          // the largest magnitude of those that count
  float factor = 1.0F;  // of a weight of 1
};

inline RowWeights weights_of(const RowState& row) {
  const auto sum = static_cast<double>(row.sum), factor = static_cast<double>(row.factor);
  return {.largest = static_cast<double>(std::exp2(row.top - row.base)) * factor / sum,
          .weight_squares = static_cast<double>(row.weight_squares) / (sum * sum),
          .score = static_cast<double>(row.score) * std::numbers::ln2};
}

// What they may be off by.
struct RowErrors {
  double aligned = 0.0;  // deviation of a score of one that lies along the query: partial sums grow
  double random_walk = 0.0;  // deviation of any score: partial sums walk, and limbs leave some out
  double weights = 0.0;      // the most, as part of a weight
};

inline RowErrors errors_of(const AttentionMethod& method, double random_walk) {
  return {.aligned = method.score_type == PackedType::f16 ? kAlignedSigma : 0.0,
          .random_walk = random_walk,
          .weights = method.weigh_type == PackedType::bf16 ? 0x1p-9 : 0.0};
}

// Scores that are off by d_j move an output by sum_j p_j d_j (v_j - out). With a deviation of one
// for each d_j, and for values that have nothing to do with each other, its variance is
//   sum_j p_j^2 (1 - 2 p_j + Q), Q = sum_j p_j^2,
// which is at most Q (1 - Q), because sum_j p_j^3 is at least Q^2; and where one weight p is half
// or more at most 4 p^2 (1 - p)^2, what two keys have: one key that has it all is quiet.
inline double moved_by_scores(const RowWeights& row) {
  if (row.largest >= 0.5) {
    const double rest = std::max(0.0, 1.0 - row.largest);
    return 4.0 * row.largest * row.largest * rest * rest;
  }
  const double squares = std::min(row.largest, row.weight_squares);  // NaN stays
  return squares * (1.0 - squares);
}

// With values of a deviation of one, an element near zero may be off by 5e-3, which then are four
// deviations or more. Errors that every row has meet the tails of values somewhere in millions of
// elements: they count twice. Errors of weights have an end, and 1.7 is what leaves rows out that
// look at six keys and more, where it is not enough for 5e-3. Not a row that is poisoned: no
// comparison with NaN is true.
inline bool exceeds_error_bound(const RowWeights& row, const RowErrors& errors) {
  constexpr double kMoved = 5e-3 / 4.0, kTails = 2.0, kOfWeights = 1.7;
  const double aligned = errors.aligned * row.score, random_walk = kTails * errors.random_walk,
               weights = kOfWeights * errors.weights;
  return (aligned * aligned + random_walk * random_walk + weights * weights) *
             moved_by_scores(row) >
         kMoved * kMoved;
}

}  // namespace octavo::cpu
