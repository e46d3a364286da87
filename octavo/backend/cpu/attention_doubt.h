// Rows whose scores were summed in f16, looked at when their weights are known: may errors of
// scores have moved the output too far? docs/numerics/attention.md derives it.
#pragma once

#include <algorithm>
#include <cmath>

#include "octavo/backend/cpu/attention.h"

namespace octavo::cpu {

struct RowWeights {
  double largest;  // weight
  double squares;  // of all weights, their sum; or infinity, where that is not known
  double score;    // the largest magnitude of scores that count, in units of ln
};

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
  const double squares = std::min(row.largest, row.squares);  // NaN stays
  return squares * (1.0 - squares);
}

// Keys along the query have errors of `sigma` times their scores at most. With values of a
// deviation of one, an element near zero may be off by 5e-3, which then are four deviations or
// more. Not a row that is poisoned: no comparison with NaN is true.
inline bool is_doubtful(const RowWeights& row, double sigma) {
  constexpr double kMoved = 5e-3 / 4.0;
  const double off = sigma * row.score;
  return off * off * moved_by_scores(row) > kMoved * kMoved;
}

}  // namespace octavo::cpu
