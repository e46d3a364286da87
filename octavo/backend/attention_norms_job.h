// What a certified bound of attention is made of (octavo/ops/attention/attention_bound_internal.h):
// norms of Q, K and V and of what was rounded off them, measured by `attention_norms`, and the
// worst-case rounding of a backend's kernels, which `attention_rounding` states.
//
// kernels.h only declares these names; few files need the definitions.
#pragma once

#include <cstdint>
#include <limits>

#include "octavo/backend/attention_job.h"

namespace octavo {

// A channel of V (or K) over some rows. Sums are of x - center, its squares and its fourth powers;
// squares that are not finite say that a value is not, or too large for them, and so do
// error_squares of what is used; least, most and error leave NaN out.
struct AttentionChannel {
  double center = 0.0;  // of all rows of the head: any number, best near their mean
  double least = std::numeric_limits<double>::infinity(),
         most = -std::numeric_limits<double>::infinity();
  double sum = 0.0, squares = 0.0, fourth_powers = 0.0;
  double error = 0.0, error_squares = 0.0;  // largest |given - used|, and the sum of its squares
};

// Sums may be off by 2^-14 of themselves (of the magnitudes of their terms), and by 2^-149 for each
// term; f64 values are not narrowed. What is used instead of the given numbers is
// `used`, or, where that is absent, the given values rounded to `values`; codes as they are.
struct AttentionNormsJob {
  std::int64_t batches = 0, heads = 0;
  AttentionOperand given{};
  const AttentionOperand* used = nullptr;
  DType values = DType::f64;              // f64: not rounded
  const std::int64_t* lengths = nullptr;  // rows beyond are not read, and have zeros
  // [batches, heads, rows] each, or null: sums of squares of a row, and of given - used.
  double *row_squares = nullptr, *row_error_squares = nullptr;
  // [batches, heads, ranges of rows, the last one shorter][cols], or null.
  AttentionChannel* channels = nullptr;
  std::int64_t rows_per_range = 0;
};

// Rows whose mean is the center of a channel: evenly spread ones of the head.
inline constexpr std::int64_t kCenterRows = 16;

// Worst case of a job's kernels, whatever their inputs: everything but the rounding of Q, K and V.
// Scores are in units of ln.
struct AttentionRounding {
  double unit = 0.0;     // of sums and of what is done to a score: half an ulp of 1
  double scores = 0.0;   // error of a score, relative to |softmax_scale| |q| |k|
  double weights = 0.0;  // of P, relative: of the exponential, and of rounding it
  double lost = 0.0;     // and absolute, where the largest P is from 1/2 to 1
  // Of a sum of n weighted values relative to sum_j w_j |v_j|, or of weights: the rounding of each
  // step, added up, and how far the weights that are summed are from those that are multiplied.
  double sums = 0.0;
  // Of a weighted value, relative to the largest scale of V: where scales of tokens are kept
  // relative to each other, the values of small ones are lost beside a large one, even of zeros.
  double flushed = 0.0;
};

}  // namespace octavo
