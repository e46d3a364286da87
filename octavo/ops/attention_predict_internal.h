// How far a rung is from attention of the inputs it was given, predicted from magnitudes and n_eff.
// docs/numerics/attention.md derives the formula.
#pragma once

#include <array>
#include <cstddef>

#include "octavo/backend/attention_job.h"
#include "octavo/ops/attention.h"

namespace octavo {

// From the cheapest to the dearest, in the time that products take.
inline constexpr std::array<AttentionRung, 5> kRungsByCost = {
    AttentionRung::fast, AttentionRung::balanced, AttentionRung::strict, AttentionRung::bf16,
    AttentionRung::f32};

// What is known of a range of rows before anything is multiplied.
struct RangeFacts {
  std::size_t kv = 0;  // which head of keys, of all batches
  double softmax_scale = 1.0;
  double head_size = 1.0;
  AttentionSurvey q{};         // rows of the range, turned where Q is values
  AttentionSurvey k_turned{};  // the head's keys, smoothed and turned where K is values
  AttentionSurvey k_smooth{};  // smoothed only
  AttentionSurvey k_given{};   // as they are, for rungs that do not smooth
  AttentionSurvey v{};
  DType q_type = DType::code, k_type = DType::code, v_type = DType::code;
  bool log_sum_exp = false;  // is asked for as well
};

// Does this rung round K as it is given?
[[nodiscard]] bool rounds_given_keys(AttentionRung rung);

// Can this rung take such inputs? Where K is smoothed for the call the log-sum-exp has Q, rounded,
// times the mean of K in it, which nothing here predicts.
[[nodiscard]] bool takes(AttentionRung rung, const RangeFacts& facts);

// Six standard deviations of the error of an element, in the channel where V is largest, of a row
// whose weights spread over n_eff keys or more; or of its log-sum-exp where that is asked for and
// off by more. NaN where anything is.
[[nodiscard]] double predicted_error(AttentionRung rung, const RangeFacts& facts, double n_eff);

}  // namespace octavo
