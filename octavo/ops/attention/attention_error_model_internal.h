// Error model of `auto`: the error of a rung against exact attention of the given inputs, from
// magnitudes and n_eff. docs/numerics/attention.md derives the formula.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "octavo/backend/attention_job.h"
#include "octavo/base/running_extremes.h"
#include "octavo/ops/attention/attention.h"

namespace octavo {

// From the cheapest to the most expensive, by the time of their products.
inline constexpr std::array<AttentionRung, 6> kRungsByCost = {
    AttentionRung::fast, AttentionRung::balanced, AttentionRung::strict,
    AttentionRung::bf16, AttentionRung::f16,      AttentionRung::f32};

inline constexpr double kDeviations = 6.0;  // standard deviations covered by a modelled error

// Statistics of a range of rows, known before any product.
struct RangeFacts {
  std::size_t kv = 0;  // which head of keys, of all batches
  double softmax_scale = 1.0;
  double head_size = 1.0;
  AttentionStatistics q{};          // rows of the range, rotated where Q is values
  AttentionStatistics k_rotated{};  // the head's keys, smoothed and rotated where K is values
  AttentionStatistics k_smooth{};   // smoothed only
  AttentionStatistics k_given{};    // as they are, for rungs that do not smooth
  AttentionStatistics v{};
  AttentionStatistics v_spread{};  // of V less its mean over keys
  DType q_type = DType::code, k_type = DType::code, v_type = DType::code;
  bool log_sum_exp = false;  // the log-sum-exp is requested as well
  bool sees_level = false;   // AttentionCall::sees_level
  bool soft_cap = false;
};

// Facts of one row, or of the worst row of a range.
struct RowFacts {
  // Lower bound of the effective number of keys, 1 / (sum of squared weights); a sink, which has a
  // weight and no key, makes it larger.
  double n_eff = 2.0;
  // Upper bound of the number of independent keys in its output: see different_keys.
  double different = HUGE_VAL;
  double score = 0.0;  // about the largest magnitude of the scores that carry weight
  // Squares of its output, where that is checked: their mean over channels, or the largest reduced
  // by what chance explains.
  double values = 0.0;
};

// Deviation of an output row from the mean of V: its sum of squares and its largest magnitude.
struct MeanDeviation {
  double squares = 0.0, most = 0.0;
};

// Relative rounding error of the output type: half an ulp.
[[nodiscard]] double rounding_of(DType out);

// Does this rung round K as it is given?
[[nodiscard]] bool rounds_given_keys(AttentionRung rung);

// Does this rung take such inputs? Where K is smoothed for the call, the log-sum-exp contains
// rounded Q times the mean of K, which this model does not cover. Nor where a soft cap or sinks
// forbid smoothing. f16 is for inputs of f16 (and codes beside them), which it does not round: the
// model knows neither values beyond its range nor subnormal ones.
[[nodiscard]] bool takes(AttentionRung rung, const RangeFacts& facts);

// An output that is the mean of n independent values deviates from the mean of V by about rms /
// sqrt(n). Where it deviates more, the row has fewer independent keys than its weights suggest:
// some keys are equal or nearly equal, or values correlate with keys.
[[nodiscard]] double different_keys(const RangeFacts& facts, const MeanDeviation& mean_deviation);

// How many keys act as one (correlated keys), estimated over many rows. In one row chance may hide
// it: where tokens are of two kinds, its output is the mean of V whenever both kinds have the same
// score, yet their errors are as correlated as elsewhere. The mean over rows of n_eff |deviation|^2
// / (spread of V) is 1 where keys are independent.
class KeysAlike {
 public:
  void add(double n_eff, const MeanDeviation& mean_deviation);
  [[nodiscard]] double number(const RangeFacts& facts) const;  // 1 where that may be chance

 private:
  double sum_ = 0.0, rows_ = 0.0;
};

// The magnitude of scores up to which their rounding in f32 contributes less than a hundredth of
// the tolerance.
[[nodiscard]] double negligible_score(const RangeFacts& facts, double tolerance);

// Six standard deviations of the error of an element, in the channel where V is largest; or of the
// log-sum-exp where that is requested and its error is larger. NaN where any input is.
[[nodiscard]] double modelled_error(AttentionRung rung, const RangeFacts& facts,
                                    const RowFacts& row);

// Does the model of this rung depend on Q and K? Not where the rung uses them unrounded.
[[nodiscard]] bool rounds_queries_or_keys(AttentionRung rung, const RangeFacts& facts);

// Does this rung use Q, K and V unrounded, and round P alone?
[[nodiscard]] bool is_as_given(AttentionRung rung, const RangeFacts& facts);

// The part of modelled_error due to P and V alone; needs only the statistics of V.
[[nodiscard]] double least_modelled_error(AttentionRung rung, const RangeFacts& facts,
                                          const RowFacts& row);

// Worst-case error of an element, where errors of keys do not average out and the values with
// weight are about as large as the others; or of the log-sum-exp, as above.
[[nodiscard]] double error_without_averaging(AttentionRung rung, const RangeFacts& facts);

}  // namespace octavo
