// How far a rung is from attention of the inputs it was given, predicted from magnitudes and n_eff.
// docs/numerics/attention.md derives the formula.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "octavo/backend/attention_job.h"
#include "octavo/ops/attention/attention.h"

namespace octavo {

// From the cheapest to the dearest, in the time that products take.
inline constexpr std::array<AttentionRung, 5> kRungsByCost = {
    AttentionRung::fast, AttentionRung::balanced, AttentionRung::strict, AttentionRung::bf16,
    AttentionRung::f32};

inline constexpr double kDeviations = 6.0;  // that a prediction allows for

// To the larger, or the smaller one; NaN stays.
inline void raise(double& to, double number) {
  if (to == to && !(number <= to)) to = number;
}
inline void lower(double& to, double number) {
  if (to == to && !(number >= to)) to = number;
}

// What is known of a range of rows before anything is multiplied.
struct RangeFacts {
  std::size_t kv = 0;  // which head of keys, of all batches
  double softmax_scale = 1.0;
  double head_size = 1.0;
  AttentionStatistics q{};          // rows of the range, turned where Q is values
  AttentionStatistics k_rotated{};  // the head's keys, smoothed and turned where K is values
  AttentionStatistics k_smooth{};   // smoothed only
  AttentionStatistics k_given{};    // as they are, for rungs that do not smooth
  AttentionStatistics v{};
  AttentionStatistics v_spread{};  // of V less its mean over keys
  DType q_type = DType::code, k_type = DType::code, v_type = DType::code;
  bool log_sum_exp = false;  // is asked for as well
};

// What is known of one row, or of the worst of a range.
struct RowFacts {
  double n_eff = 2.0;  // how many keys its weights spread over, at least
  // How many different keys its output looks like the mean of, at most: see different_keys.
  double different = HUGE_VAL;
  double score = 0.0;  // about the largest magnitude of the scores of keys that it looks at
  // Squares of its output where that is looked at: their mean over channels, or the largest less
  // what is chance.
  double values = 0.0;
};

// An output less the mean of V: its sum of squares and its largest number.
struct MeanDeviation {
  double squares = 0.0, most = 0.0;
};

// Half a unit of the last place of an output, relative.
[[nodiscard]] double rounding_of(DType out);

// Does this rung round K as it is given?
[[nodiscard]] bool rounds_given_keys(AttentionRung rung);

// Can this rung take such inputs? Where K is smoothed for the call the log-sum-exp has Q, rounded,
// times the mean of K in it, which nothing here predicts.
[[nodiscard]] bool takes(AttentionRung rung, const RangeFacts& facts);

// An output that is the mean of n values which have nothing to do with each other is about
// rms / sqrt(n) away from the mean of V. Where it is farther, the keys that its row looks at are
// fewer than weights say: some are equal, or nearly, or values go with keys.
[[nodiscard]] double different_keys(const RangeFacts& facts, const MeanDeviation& mean_deviation);

// How many keys act as one, over many rows. Of one row chance may hide it: where tokens are of two
// kinds, its output is at the mean of V whenever both have the same score, and their errors are as
// much alike as elsewhere. The mean over rows of n_eff |away|^2 / (spread of V) is 1 where keys
// have nothing to do with each other.
class KeysAlike {
 public:
  void add(double n_eff, const MeanDeviation& mean_deviation);
  [[nodiscard]] double number(const RangeFacts& facts) const;  // 1 where that may be chance

 private:
  double sum_ = 0.0, rows_ = 0.0;
};

// The magnitude of scores up to which f32's own roundings of them make less than a hundredth of
// the tolerance.
[[nodiscard]] double negligible_score(const RangeFacts& facts, double tolerance);

// Six standard deviations of the error of an element, in the channel where V is largest; or of the
// log-sum-exp where that is asked for and off by more. NaN where anything is.
[[nodiscard]] double modelled_error(AttentionRung rung, const RangeFacts& facts,
                                    const RowFacts& row);

// Does the prediction for this rung look at Q and K? Not where it takes them as they are.
[[nodiscard]] bool rounds_queries_or_keys(AttentionRung rung, const RangeFacts& facts);

// Does this rung take Q, K and V as they are, and round P alone?
[[nodiscard]] bool is_as_given(AttentionRung rung, const RangeFacts& facts);

// What P and V alone make of modelled_error: of V's facts.
[[nodiscard]] double least_modelled_error(AttentionRung rung, const RangeFacts& facts,
                                          const RowFacts& row);

// The most that an element is off by if no error of a key is made up for by another one's, where
// the values that a row looks at are about as large as others; or the log-sum-exp, as above.
[[nodiscard]] double error_without_averaging(AttentionRung rung, const RangeFacts& facts);

}  // namespace octavo
