#include "octavo/ops/attention/attention_error_model_internal.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/root_sum_square.h"

namespace octavo {
namespace {

// Root mean square of the relative error of rounding a number whose logarithm is spread evenly: of
// e4m3 2.6 % (steps of 2^-3 relative to the power of two below: 2^-3 / sqrt(12) / 1.386), of bf16
// 2^-4 of that, of f16 2^-7, of f32 2^-20 of it, of two e4m3 terms 2^-3 (hi, toward zero, leaves a
// rest of at most 2^-3, which is rounded to 2.6 %).
constexpr double kE4m3 = 0.0260, kBf16 = kE4m3 / 16, kF16 = kE4m3 / 128, kF32 = kE4m3 / (1 << 20),
                 kSplit = kE4m3 / 8;
const double kInt8Step = 1.0 / (127.0 * std::sqrt(12.0));  // of an amax

// Relative error of a value of type `given` that a rung rounds with rms error `rounded`.
double error_of(double rounded, DType given) {
  if (given == DType::code) return 0.0;  // used as they are
  if (rounded == kF32) return given == DType::f64 ? kF32 : 0.0;
  if (rounded == kF16 && given == DType::f16) return 0.0;
  return rounded == kBf16 && given == DType::bf16 ? 0.0 : rounded;
}

// Errors of P move an output by no more than the largest of them times sum_j p_j |v_j - o|, which
// is at most the standard deviation of v under p: about its rms, and more for rows whose weights
// are on larger values.
constexpr double kMaxSpread = 2.2;

double square(double number) { return number * number; }
double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }  // NaN stays

// Combined relative error of Q and K on a rung that keeps them as floats.
double relative_error(AttentionRung rung, const RangeFacts& facts) {
  const double of_value = rung == AttentionRung::bf16  ? kBf16
                          : rung == AttentionRung::f16 ? kF16
                          : rung == AttentionRung::f32 ? kF32
                                                       : kE4m3;
  return root_sum_square(error_of(of_value, facts.q_type), error_of(of_value, facts.k_type));
}

// Standard deviation of a score, in units of ln.
double score_error(AttentionRung rung, const RangeFacts& facts) {
  const double scale = std::abs(facts.softmax_scale);
  if (rung == AttentionRung::balanced)
    return scale * kInt8Step *
           std::sqrt(square(facts.q.amax) * facts.k_rotated.row_squares +
                     square(facts.k_rotated.amax) * facts.q.row_squares);
  const double relative = relative_error(rung, facts);
  if (relative == 0.0) return 0.0;
  // sum_d q_d^2 k_d^2 is at most |q|^2 times the largest of the k_d^2 that a channel has on
  // average. A longer key has a larger score error and may carry any part of a row's weight: so the
  // longest key counts, its square spread over the channels.
  const AttentionStatistics& k = rounds_given_keys(rung) ? facts.k_given : facts.k_smooth;
  const double squares = larger(k.channel_squares, k.row_squares / facts.head_size);
  return scale * relative * std::sqrt(facts.q.row_squares * squares);
}

// Standard deviation of the f32 rounding error of a score of magnitude 1, in units of ln. A sum of
// D products rounds D times, by 2^-24 / sqrt(3) of a partial sum that grows to the score: 2^-24
// sqrt(D) / 3. Its factor, the bias and the largest score of the row are three roundings more. A
// soft cap leaves that: it moves a score x by no more than the error of x times 1 - tanh^2, and x
// (1
// - tanh^2) is no larger than the capped score. What its tanh adds is bounded; six of these are the
// bound.
double arithmetic_error(const RangeFacts& facts) {
  const double of_cap = facts.soft_cap ? kSoftCapError / kDeviations : 0.0;
  return 0x1p-24 * (std::sqrt(facts.head_size) / 3.0 + 1.0) + of_cap;
}

// Largest relative error of P: half an ulp of its format.
double most_p_error(AttentionRung rung) {
  switch (rung) {
    case AttentionRung::fast:
      return 0x1p-4;
    case AttentionRung::strict:
      return 0x1p-7;
    case AttentionRung::f16:
      return 0x1p-11;
    case AttentionRung::f32:
      return 0x1p-24;
    default:
      return 0x1p-9;
  }
}

double p_error(AttentionRung rung) {
  switch (rung) {
    case AttentionRung::fast:
      return kE4m3;
    case AttentionRung::strict:
      return kSplit;
    case AttentionRung::f16:
      return kF16;
    case AttentionRung::f32:
      return kF32;
    default:
      return kBf16;
  }
}

double v_error(AttentionRung rung, DType given) {
  switch (rung) {
    case AttentionRung::fast:
    case AttentionRung::strict:
      return error_of(kE4m3, given);
    case AttentionRung::f16:
      return error_of(kF16, given);
    case AttentionRung::f32:
      return error_of(kF32, given);
    default:
      return error_of(kBf16, given);
  }
}

double most_v_error(AttentionRung rung, DType given) {
  const double error = v_error(rung, given);
  if (error == kF16) return 0x1p-11;
  return error == kE4m3 ? 0x1p-4 : error == kBf16 ? 0x1p-9 : error == kF32 ? 0x1p-24 : 0.0;
}

// The error of the log-sum-exp is sum_j p_j d_j, d_j being the error of score j and of its P: no
// normalization cancels it, and a row whose weight is on one key, or on equal keys, is the worst.
// Whether keys are equal is unknown here.
double log_sum_exp_error(AttentionRung rung, double of_score) {
  return root_sum_square(kDeviations * of_score, most_p_error(rung));
}

}  // namespace

double rounding_of(DType out) {
  return out == DType::bf16 ? 0x1p-8 : out == DType::f16 ? 0x1p-11 : 0x1p-24;
}

bool rounds_given_keys(AttentionRung rung) {
  return rung != AttentionRung::fast && rung != AttentionRung::balanced;
}

bool takes(AttentionRung rung, const RangeFacts& facts) {
  if (rung == AttentionRung::f16) {
    const auto is = [&](auto&& good) {
      return good(facts.q_type) + good(facts.k_type) + good(facts.v_type);
    };
    const int halves = is([](DType type) { return int{type == DType::f16}; }),
              codes = is([](DType type) { return int{type == DType::code}; });
    return halves > 0 && halves + codes == 3;
  }
  const bool needs_level = facts.log_sum_exp || facts.sees_level;
  if (needs_level && facts.k_type != DType::code && !rounds_given_keys(rung)) return false;
  if (rung != AttentionRung::balanced) return true;
  return facts.q_type != DType::code && facts.k_type != DType::code;
}

namespace {

// A sum of squares of n independent normal numbers has a relative standard deviation of sqrt(2 /
// n); all rows of a head are within four and a half of those.
double root_by_chance(double numbers) { return 1.0 + 4.5 / std::sqrt(2.0 * numbers); }

// Effective number of channels of V's spread.
double spread_channels(const RangeFacts& facts) {
  return std::max(1.0, facts.v_spread.mean_squares / facts.v_spread.channel_squares);
}

}  // namespace

double different_keys(const RangeFacts& facts, const MeanDeviation& mean_deviation) {
  if (mean_deviation.squares == 0.0) return HUGE_VAL;
  const double in_all = facts.v_spread.mean_squares, largest = facts.v_spread.channel_squares;
  if (in_all == 0.0) return HUGE_VAL;  // all rows of V are equal: the probe shows its rounding
  constexpr double kOfOne = 5.0;       // standard deviations that one number stays within
  const double by_sum =
                   square(root_by_chance(spread_channels(facts))) * in_all / mean_deviation.squares,
               by_one = square(kOfOne / mean_deviation.most) * largest;
  return by_sum <= by_one || std::isnan(by_sum) ? by_sum : by_one;
}

void KeysAlike::add(double n_eff, const MeanDeviation& mean_deviation) {
  if (!std::isfinite(n_eff * mean_deviation.squares))
    return;  // a poisoned row tells nothing of others
  sum_ += n_eff * mean_deviation.squares;
  rows_ += 1.0;
}

double KeysAlike::number(const RangeFacts& facts) const {
  const double in_all = facts.v_spread.mean_squares;
  if (rows_ == 0.0 || in_all == 0.0) return 1.0;
  const double number = sum_ / rows_ / in_all;
  return number <= square(root_by_chance(spread_channels(facts) * rows_)) ? 1.0 : number;
}

double negligible_score(const RangeFacts& facts, double tolerance) {
  const double moves = larger(std::sqrt(facts.v.channel_squares), facts.log_sum_exp ? 1.0 : 0.0);
  return 0.01 * tolerance / (kDeviations * arithmetic_error(facts) * moves);
}

bool rounds_queries_or_keys(AttentionRung rung, const RangeFacts& facts) {
  return rung == AttentionRung::balanced || relative_error(rung, facts) != 0.0;
}

bool is_as_given(AttentionRung rung, const RangeFacts& facts) {
  return !rounds_queries_or_keys(rung, facts) && v_error(rung, facts.v_type) == 0.0;
}

namespace {

// `of_score`: its standard deviation.
double output_error(AttentionRung rung, const RangeFacts& facts, const RowFacts& row,
                    double of_score) {
  // Relative errors d_j of the weights move the output by sum_j p_j d_j (v_j - o), where sum_j
  // p_j^2 is 1 / n_eff; what v_j - o lacks to v_j is the part of a key in o, another 1 / n_eff (a
  // sink leaves both: with weights that sum to less than one sum_j p_j^3 is larger still).
  // That is largest at n_eff = 2, and held there for less: other rows of a range have weight on
  // more keys.
  const double keys = row.n_eff < 2.0 ? 2.0 : row.n_eff;  // NaN stays
  double of_weights = (1.0 - 1.0 / keys) / keys, of_values = 1.0 / row.n_eff;
  if (!(row.different >= row.n_eff)) {
    of_weights = larger(1.0 / row.different, of_weights);
    of_values = larger(1.0 / row.different, of_values);
  }
  const double scores = square(kDeviations * of_score) * of_weights,
               values = square(kDeviations * v_error(rung, facts.v_type)) * of_values,
               p = std::min(square(kDeviations * p_error(rung)) * of_weights,
                            square(kMaxSpread * most_p_error(rung)));
  return std::sqrt((scores + p + values) * larger(facts.v.channel_squares, row.values));
}

}  // namespace

double least_modelled_error(AttentionRung rung, const RangeFacts& facts, const RowFacts& row) {
  return output_error(rung, facts, row, 0.0);
}

double modelled_error(AttentionRung rung, const RangeFacts& facts, const RowFacts& row) {
  const double of_score =
      root_sum_square(score_error(rung, facts), arithmetic_error(facts) * row.score);
  const double output = output_error(rung, facts, row, of_score);
  return facts.log_sum_exp ? larger(output, log_sum_exp_error(rung, of_score)) : output;
}

double error_without_averaging(AttentionRung rung, const RangeFacts& facts) {
  // Score errors have no bound: three standard deviations.
  constexpr double kOfScore = 3.0;
  const double of_score = score_error(rung, facts);
  const double relative =
      kOfScore * of_score + most_p_error(rung) + most_v_error(rung, facts.v_type);
  const double output = kMaxSpread * relative * std::sqrt(facts.v.channel_squares);
  return facts.log_sum_exp ? larger(output, log_sum_exp_error(rung, of_score)) : output;
}

}  // namespace octavo
