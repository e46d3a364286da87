#include "octavo/ops/attention_predict_internal.h"

#include <algorithm>
#include <cmath>

namespace octavo {
namespace {

// Root mean square of the relative error of rounding a number whose logarithm is spread evenly: of
// e4m3 2.6 % (steps of 2^-3 relative to the power of two below: 2^-3 / sqrt(12) / 1.386), of bf16
// 2^-4 of that, of f32 2^-20 of it, of two e4m3 terms 2^-3 (hi, toward zero, leaves a rest of at
// most 2^-3, which is rounded to 2.6 %).
constexpr double kE4m3 = 0.0260, kBf16 = kE4m3 / 16, kF32 = kE4m3 / (1 << 20), kSplit = kE4m3 / 8;
constexpr double kDeviations = 6.0;
const double kInt8Step = 1.0 / (127.0 * std::sqrt(12.0));  // of an amax

// Of a value that a rung has in `rounded` and that was given as `given`.
double error_of(double rounded, DType given) {
  if (given == DType::code) return 0.0;  // taken as they are
  if (rounded == kF32) return given == DType::f64 ? kF32 : 0.0;
  return rounded == kBf16 && given == DType::bf16 ? 0.0 : rounded;
}

double square(double number) { return number * number; }
double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }  // NaN stays

// Standard deviation of a score, in units of ln.
double score_error(AttentionRung rung, const RangeFacts& facts) {
  const double scale = std::abs(facts.softmax_scale);
  if (rung == AttentionRung::balanced)
    return scale * kInt8Step *
           std::sqrt(square(facts.q.amax) * facts.k_turned.row_squares +
                     square(facts.k_turned.amax) * facts.q.row_squares);
  const double of_value = rung == AttentionRung::bf16  ? kBf16
                          : rung == AttentionRung::f32 ? kF32
                                                       : kE4m3;
  const double relative =
      std::hypot(error_of(of_value, facts.q_type), error_of(of_value, facts.k_type));
  // sum_d q_d^2 k_d^2 is at most |q|^2 times the largest of the k_d^2 that a channel has on
  // average. A key that is longer than others has a score that is off by more, and may have any
  // part of a row's weight: so the longest key counts, its square spread over the channels.
  const AttentionSurvey& k = rounds_given_keys(rung) ? facts.k_given : facts.k_smooth;
  const double squares = larger(k.channel_squares, k.row_squares / facts.head_size);
  return scale * relative * std::sqrt(facts.q.row_squares * squares);
}

// The most that P can be off by, relative: half a step of its form.
double most_p_error(AttentionRung rung) {
  switch (rung) {
    case AttentionRung::fast:
      return 0x1p-4;
    case AttentionRung::strict:
      return 0x1p-7;
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
    case AttentionRung::f32:
      return error_of(kF32, given);
    default:
      return error_of(kBf16, given);
  }
}

// The log-sum-exp is off by sum_j p_j d_j, d_j being what score j and its P are off by: nothing is
// taken out by dividing, and one key is the worst. Rows that nobody looked at (n_eff is 2) may have
// one.
double log_sum_exp_error(AttentionRung rung, const RangeFacts& facts, double n_eff) {
  const double keys = n_eff <= 2.0 ? 1.0 : n_eff;
  const double scores = kDeviations * score_error(rung, facts) / std::sqrt(keys),
               p = std::min(kDeviations * p_error(rung) / std::sqrt(keys), most_p_error(rung));
  return std::hypot(scores, p);
}

}  // namespace

bool rounds_given_keys(AttentionRung rung) {
  return rung != AttentionRung::fast && rung != AttentionRung::balanced;
}

bool takes(AttentionRung rung, const RangeFacts& facts) {
  if (facts.log_sum_exp && facts.k_type != DType::code && !rounds_given_keys(rung)) return false;
  if (rung != AttentionRung::balanced) return true;
  return facts.q_type != DType::code && facts.k_type != DType::code;
}

double predicted_error(AttentionRung rung, const RangeFacts& facts, double n_eff) {
  // Weights off by a fraction d_j move the output by sum_j p_j d_j (v_j - o), where sum_j p_j^2 is
  // 1 / n_eff; what v_j - o lacks to v_j is the part of a key in o, another 1 / n_eff. That is
  // largest at n_eff = 2, where it stays for less: other rows of a range look at more keys.
  const double keys = n_eff < 2.0 ? 2.0 : n_eff;  // NaN stays
  const double weights =
      (square(score_error(rung, facts)) + square(p_error(rung))) * (1.0 - 1.0 / keys) / keys;
  const double values = square(v_error(rung, facts.v_type)) / n_eff;
  const double output = kDeviations * std::sqrt((weights + values) * facts.v.channel_squares);
  return facts.log_sum_exp ? larger(output, log_sum_exp_error(rung, facts, n_eff)) : output;
}

}  // namespace octavo
