// Bounds of the error of a row of attention against exact attention of the given inputs, from norms
// of Q, K and V, from what was rounded off them, and from the weights' concentration: one that
// always holds (certified), and one that holds with a stated probability where roundings are
// independent. docs/numerics/attention-bound.md derives both; names are those of that page.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_norms_job.h"

namespace octavo {

// With roundings as that page assumes them a row's error exceeds its probabilistic bound with this
// probability at most.
inline constexpr double kBoundFailure = 1e-6;

// How many deviations one of so many sums of independent, bounded numbers exceeds with that
// probability: 2 exp(-t^2 / 2) for each (Hoeffding).
[[nodiscard]] double deviations_for(double channels);

// Keys that a row may see (or more of them). Rows are those that are given, smoothed and rotated
// where the rung does that.
struct KeyNorms {
  double longest = 0.0;  // the largest norm of a row
  double error = 0.0;    // of a row of what is rounded off
  // Largest over channels, of means over rows: of squares of what a channel deviates from its
  // center, and of errors, of the latter as if all rows had the largest error.
  double spread_squares = 0.0, error_squares = 0.0;
};

// Values that a row may see (or more of them), each the largest over channels.
struct ValueNorms {
  double rows = 0.0;
  double range = 0.0;                         // largest less least, where there is a sink with 0
  double largest = 0.0;                       // magnitude
  double center = 0.0, mean = 0.0;            // magnitudes of the center and of the mean
  double squares = 0.0, fourth_powers = 0.0;  // sums over rows of (v - center)^2 and ^4
  double error = 0.0, error_squares = 0.0;    // the largest, and the sum of squares
  double largest_scale = 0.0;                 // of all values of the call, where they are codes
};

struct QueryNorms {
  double length = 0.0, error = 0.0;
};

// A row's weights: before it is computed nothing is known of them but the number of keys.
struct RowWeights {
  double keys = 0.0;                  // at most so many have a weight
  double least = 0.0, largest = 1.0;  // the largest weight is one of these, or between them
  double squares = 1.0;               // at most
};

// What all rows of a job have in common.
struct BoundTerms {
  double softmax_scale = 1.0, soft_cap = 0.0, head_size = 1.0;
  // deviations_for the channels of V; 0 where no probabilistic bound is asked for: it is the
  // certified one then.
  double deviations = 0.0;
  bool has_sink = false;
  AttentionRounding kernels{};
};

// Certified bounds are rounded upward; infinite where none holds (Inf or NaN, overflow).
struct RowBounds {
  double certified = 0.0, probabilistic = 0.0;
  double log_sum_exp = 0.0;  // certified, before it is rounded to f32
};
// `bias`: the largest magnitude that a bias adds to a score that counts. The rounding of the output
// to its type is not in it.
[[nodiscard]] RowBounds row_bounds(const BoundTerms& terms, const QueryNorms& q, const KeyNorms& k,
                                   const ValueNorms& v, const RowWeights& weights, double bias);

// How much the weights may move, as the largest difference of the weight of any set of keys, where
// each weight is off by a factor from exp(-log_error) to exp(log_error) before they are normalized.
// `largest`: a weight that is at least this; 0: not known.
[[nodiscard]] double moved_weight(double log_error, double largest);

}  // namespace octavo
