#include "octavo/ops/attention_survey_internal.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/ops/attention_rungs_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention";

std::vector<AttentionSurvey> survey_of(const AttentionCall& call, const Exec& exec,
                                       const AttentionStack& of,
                                       std::span<const std::int64_t> lengths,
                                       std::int64_t per_range) {
  const std::int64_t step = std::max<std::int64_t>(1, per_range);
  const std::int64_t ranges = (of.rows() + step - 1) / step;
  std::vector<AttentionSurvey> result(static_cast<std::size_t>(of.batches() * of.heads() * ranges));
  if (result.empty()) return result;
  run_attention_survey(exec, call.options,
                       {.batches = of.batches(),
                        .heads = of.heads(),
                        .of = of.operand(),
                        .lengths = lengths.empty() ? nullptr : lengths.data(),
                        .rows_per_range = step,
                        .result = result.data()});
  return result;
}

// The largest number, and the largest length of a row.
struct Most {
  double number = 0.0, length = 0.0;
};
Most most_of(const AttentionCall& call, const Exec& exec, const AttentionStack& of,
             std::span<const std::int64_t> lengths) {
  Most most;
  for (const AttentionSurvey& survey : survey_of(call, exec, of, lengths, of.rows())) {
    if (!(survey.amax <= most.number)) most.number = survey.amax;
    const double length = std::sqrt(survey.row_squares);
    if (!(length <= most.length)) most.length = length;
  }
  return most;
}

}  // namespace

bool is_beyond_f32(const AttentionCall& call, const Exec& exec) {
  const auto is_wide = [](const AttentionStack& stack) {
    return !stack.is_quantized() && stack.elements().dtype == DType::f64;
  };
  if (!is_wide(call.q) && !is_wide(call.k) && !is_wide(call.v)) return false;
  const AttentionMask& mask = call.options.mask;
  const Most q = most_of(call, exec, call.q, mask.query_lengths),
             k = most_of(call, exec, call.k, mask.key_lengths),
             v = most_of(call, exec, call.v, mask.key_lengths);
  constexpr double kLargest = std::numeric_limits<float>::max();
  for (const double number :
       {q.number, k.number, v.number, q.length * k.length,
        q.length * k.length * std::abs(call.job().softmax_scale) / std::log(2.0)})
    if (!(number <= kLargest)) return true;
  return false;
}

AttentionFacts::AttentionFacts(const AttentionCall& call, bool log_sum_exp, const Exec& exec)
    : call_(call), exec_(exec), log_sum_exp_(log_sum_exp) {
  const AttentionMask& mask = call.options.mask;
  const std::int64_t keys = call.k.rows();
  // One temporary at a time.
  const auto of = [&](const AttentionStack& given, std::span<const std::int64_t> lengths,
                      std::int64_t per_range, std::vector<float>* mean, bool hadamard) {
    if (given.is_quantized() || given.rows() == 0) return survey(given, lengths, per_range);
    const Tensor copy = turned(given, lengths, mean != nullptr ? mean->data() : nullptr, hadamard);
    return survey(AttentionStack(Operand(copy), kOp, "a copy"), lengths, per_range);
  };
  const auto mean_for = [](const AttentionStack& stack) {
    return std::vector<float>(
        static_cast<std::size_t>(stack.batches() * stack.heads() * stack.cols()));
  };
  std::vector<float> k_mean = mean_for(call.k);
  v_mean_ = mean_for(call.v);
  q_ = of(call.q, mask.query_lengths, kRowsPerRange, nullptr, true);
  k_turned_ = of(call.k, mask.key_lengths, keys, &k_mean, true);
  k_smooth_ = of(call.k, mask.key_lengths, keys, &k_mean, false);
  v_ = survey(call.v, mask.key_lengths, keys);
  v_spread_ = of(call.v, mask.key_lengths, keys, &v_mean_, false);
}

std::vector<AttentionSurvey> AttentionFacts::survey(const AttentionStack& of,
                                                    std::span<const std::int64_t> lengths,
                                                    std::int64_t per_range) const {
  return survey_of(call_, exec_, of, lengths, per_range);
}

Tensor AttentionFacts::turned(const AttentionStack& of, std::span<const std::int64_t> lengths,
                              float* mean, bool hadamard) const {
  return prepared(call_, of, lengths, mean, hadamard, false, exec_);
}

std::size_t AttentionFacts::query_index(const AttentionRange& range) const {
  const std::int64_t ranges = (call_.q.rows() + kRowsPerRange - 1) / kRowsPerRange;
  return static_cast<std::size_t>((range.batch * call_.q.heads() + range.head) * ranges +
                                  range.first / kRowsPerRange);
}

std::size_t AttentionFacts::kv_index(const AttentionRange& range) const {
  const std::int64_t group = call_.q.heads() / std::max<std::int64_t>(1, call_.k.heads());
  return static_cast<std::size_t>(range.batch * call_.k.heads() + range.head / group);
}

RangeFacts AttentionFacts::facts_of(const AttentionRange& range) const {
  const auto type_of = [](const AttentionStack& stack) {
    return stack.is_quantized() ? DType::code : stack.elements().dtype;
  };
  RangeFacts facts{.kv = kv_index(range),
                   .softmax_scale = call_.job().softmax_scale,
                   .head_size = static_cast<double>(call_.q.cols()),
                   .q = q_[query_index(range)],
                   .q_type = type_of(call_.q),
                   .k_type = type_of(call_.k),
                   .v_type = type_of(call_.v),
                   .log_sum_exp = log_sum_exp_};
  if (call_.k.rows() > 0) {
    facts.k_turned = k_turned_[facts.kv];
    facts.k_smooth = k_smooth_[facts.kv];
    facts.v = v_[facts.kv];
    facts.v_spread = v_spread_[facts.kv];
  }
  return facts;
}

// Keys as they are given are looked at where a rung that rounds them comes into question.
RangeFacts AttentionFacts::facts_with_keys(AttentionRung rung, const AttentionRange& range) {
  RangeFacts facts = facts_of(range);
  if (!rounds_given_keys(rung) || call_.k.rows() == 0) return facts;
  if (k_given_.empty())
    k_given_ = survey(call_.k, call_.options.mask.key_lengths, call_.k.rows());
  facts.k_given = k_given_[facts.kv];
  return facts;
}

double AttentionFacts::channels(const AttentionRange& range) const {
  const RangeFacts facts = facts_of(range);
  const double channels = facts.v_spread.mean_squares / facts.v_spread.channel_squares;
  return channels >= 1.0 ? channels : 1.0;
}

double AttentionFacts::predicted(AttentionRung rung, const AttentionRange& range,
                                 const RowFacts& row) {
  return predicted_error(rung, facts_with_keys(rung, range), row);
}

double AttentionFacts::error_without_averaging(AttentionRung rung, const AttentionRange& range) {
  return octavo::error_without_averaging(rung, facts_with_keys(rung, range));
}

double AttentionFacts::largest_value(const AttentionRange& range) const {
  return facts_of(range).v.amax;
}

bool AttentionFacts::is_tame(AttentionRung rung, const AttentionRange& range, double tolerance) {
  const RangeFacts facts = facts_with_keys(rung, range);
  constexpr double kLong = 8.0;  // of normal numbers, none is so many deviations long
  return octavo::error_without_averaging(rung, facts) <= tolerance &&
         facts.v.amax <= kLong * std::sqrt(facts.v.channel_squares);
}

double AttentionFacts::different_keys(const AttentionRange& range,
                                      std::span<const float> output) const {
  if (call_.k.rows() == 0) return HUGE_VAL;
  const float* mean = mean_of(kv_index(range));
  double squares = 0.0, most = 0.0;
  for (std::size_t e = 0; e < output.size(); ++e) {
    const double away = static_cast<double>(output[e]) - static_cast<double>(mean[e]);
    squares += away * away;
    if (!(std::abs(away) <= most)) most = std::abs(away);
  }
  return octavo::different_keys(facts_of(range), squares, most);
}

void AttentionFacts::survey_outputs(const AttentionOperand& out) {
  const std::int64_t batches = call_.q.batches(), heads = call_.q.heads(), rows = call_.q.rows(),
                     cols = call_.v.cols();
  // Less the mean of V, in f32.
  std::vector<float> mean(static_cast<std::size_t>(batches * heads * cols));
  for (std::int64_t batch = 0; batch < batches; ++batch)
    for (std::int64_t head = 0; head < heads; ++head) {
      const float* from = mean_of(kv_index({.batch = batch, .head = head}));
      std::transform(from, from + cols, mean.begin() + (batch * heads + head) * cols,
                     [](float number) { return -number; });
    }
  const std::span<const std::int64_t> lengths = call_.options.mask.query_lengths;
  const Tensor copy = Tensor::values({batches, heads, rows, cols}, DType::f32);
  const AttentionStack away(Operand(copy), kOp, "a copy");
  run_attention_prepare(exec_, call_.options,
                        {.batches = batches,
                         .heads = heads,
                         .from = out,
                         .to = away.operand(),
                         .lengths = lengths.empty() ? nullptr : lengths.data(),
                         .mean = mean.data(),
                         .undo = true});
  outputs_ = survey(away, lengths, 1);
}

double AttentionFacts::different_keys_of_output(const AttentionRange& range,
                                                std::int64_t row) const {
  const AttentionSurvey& output = outputs_[static_cast<std::size_t>(
      (range.batch * call_.q.heads() + range.head) * call_.q.rows() + row)];
  return octavo::different_keys(facts_of(range), output.row_squares, output.amax);
}

}  // namespace octavo
