// The posteriori check of rows whose scores or weights were rounded: once the weights of a row are
// known, can the rounding have moved its output too far? docs/numerics/attention.md derives the
// error bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "octavo/backend/cpu/attention/attention.h"

namespace octavo::cpu {

// The first pass over all rows, and the pass that recomputes the uncertain ones (over the error
// bound).
enum class RowsOfPass { all, uncertain };

struct RowWeights {
  double largest;         // the largest weight
  double weight_squares;  // sum of squares of all weights; infinity where unknown
  double score;           // the largest magnitude of relevant scores, in units of ln
};

// The final state of a row's online softmax (SoftmaxJob); scores are in units of log2.
struct RowState {
  float top, base, sum, weight_squares;
  float score;          // the largest magnitude of relevant scores
  float factor = 1.0F;  // what a weight of 1 is stored as
};

inline RowWeights weights_of(const RowState& row) {
  const auto sum = static_cast<double>(row.sum), factor = static_cast<double>(row.factor);
  return {.largest = static_cast<double>(std::exp2(row.top - row.base)) * factor / sum,
          .weight_squares = static_cast<double>(row.weight_squares) / (sum * sum),
          .score = static_cast<double>(row.score) * std::numbers::ln2};
}

// The same with the most that the largest weight can be, without an exponential.
inline RowWeights most_weights_of(const RowState& row) {
  const double sum = row.sum;
  return {.largest = static_cast<double>(row.factor) / sum,
          .weight_squares = static_cast<double>(row.weight_squares) / (sum * sum),
          .score = static_cast<double>(row.score) * std::numbers::ln2};
}

// Errors of the scores and weights of a row.
struct RowErrors {
  double aligned = 0.0;  // standard deviation, relative to the score, for a key aligned with the
                         // query: partial sums grow
  double random_walk = 0.0;  // standard deviation of any score: partial sums are a random walk, and
                             // limbs leave products out
  double weights = 0.0;      // largest relative error of a weight
};

inline RowErrors errors_of(const AttentionMethod& method, double random_walk) {
  return {.aligned = method.score_type == PackedType::f16 ? kAlignedSigma : 0.0,
          .random_walk = random_walk,
          .weights = method.weigh_type == PackedType::bf16 ? 0x1p-9 : 0.0};
}

// Score errors d_j move an output by sum_j p_j d_j (v_j - out). With a standard deviation of one
// for each d_j, and for independent values, its variance is
//   sum_j p_j^2 (1 - 2 p_j + Q), Q = sum_j p_j^2,
// which is at most Q (1 - Q), because sum_j p_j^3 is at least Q^2; and where one weight p is half
// or more at most 4 p^2 (1 - p)^2, the variance of two keys: a single key with all the weight has
// no error.
inline double moved_by_scores(const RowWeights& row) {
  if (row.largest >= 0.5) {
    const double rest = std::max(0.0, 1.0 - row.largest);
    return 4.0 * row.largest * row.largest * rest * rest;
  }
  const double squares = std::min(row.largest, row.weight_squares);  // NaN stays
  return squares * (1.0 - squares);
}

// With values of a standard deviation of one, an element near zero may be off by 5e-3, which then
// is four deviations or more. Errors that every row has coincide with the tails of values somewhere
// in millions of elements: they count twice. Errors of weights are bounded, and 1.7 is the factor
// that exempts rows that attend to six keys and more, where the error cannot reach 5e-3. A poisoned
// row is never over the bound: no comparison with NaN is true.
inline bool exceeds_error_bound(const RowWeights& row, const RowErrors& errors) {
  constexpr double kMoved = 5e-3 / 4.0, kTails = 2.0, kOfWeights = 1.7;
  const double aligned = errors.aligned * row.score, random_walk = kTails * errors.random_walk,
               weights = kOfWeights * errors.weights;
  return (aligned * aligned + random_walk * random_walk + weights * weights) *
             moved_by_scores(row) >
         kMoved * kMoved;
}
// A bound that grows with the largest weight up to a half: most rows pass by the most it can be.
inline bool exceeds_error_bound(const RowState& row, const RowErrors& errors) {
  const RowWeights most = most_weights_of(row);
  if (most.largest < 0.5 && !exceeds_error_bound(most, errors)) return false;
  return exceeds_error_bound(weights_of(row), errors);
}

}  // namespace octavo::cpu
