#include "octavo/ops/attention/attention_statistics_internal.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/ops/attention/attention_rungs_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention";

std::vector<AttentionStatistics> statistics_of(const AttentionCall& call, const Exec& exec,
                                               const AttentionStack& of,
                                               std::span<const std::int64_t> lengths,
                                               std::int64_t per_range) {
  const std::int64_t step = std::max<std::int64_t>(1, per_range);
  const std::int64_t ranges = (of.rows() + step - 1) / step;
  std::vector<AttentionStatistics> result(
      static_cast<std::size_t>(of.batches() * of.heads() * ranges));
  if (result.empty()) return result;
  run_attention_statistics(exec, call.options,
                           {.batches = of.batches(),
                            .heads = of.heads(),
                            .of = of.operand(),
                            .lengths = lengths.empty() ? nullptr : lengths.data(),
                            .rows_per_range = step,
                            .result = result.data()});
  return result;
}

// The largest magnitude, and the largest norm of a row.
struct Most {
  double number = 0.0, length = 0.0;
};
Most most_of(const AttentionCall& call, const Exec& exec, const AttentionStack& of,
             std::span<const std::int64_t> lengths) {
  Most most;
  for (const AttentionStatistics& statistics : statistics_of(call, exec, of, lengths, of.rows())) {
    raise(most.number, statistics.amax);
    raise(most.length, std::sqrt(statistics.row_squares));
  }
  return most;
}

// Every step-th row, without padding rows.
struct SomeRows {
  AttentionStack stack;
  std::vector<std::int64_t> lengths;
};
SomeRows some_rows(const AttentionStack& of, std::span<const std::int64_t> lengths,
                   std::int64_t step) {
  SomeRows some{of.every(step), {lengths.begin(), lengths.end()}};
  if (some.stack.rows() == of.rows()) return some;
  for (std::int64_t& length : some.lengths) length = (length + step - 1) / step;
  return some;
}

// A mean over kEnough rows gives a channel's rms to within about 5 %; of longer sequences one row
// in up to 16 is read.
std::int64_t value_step_for_decode(std::int64_t rows) {
  constexpr std::int64_t kEnough = 512, kMaxStep = 16;
  return std::clamp<std::int64_t>(rows / kEnough, 1, kMaxStep);
}

// The longest sequence of any batch. A KV cache has capacity for more.
std::int64_t most_keys(const AttentionCall& call) {
  const std::span<const std::int64_t> lengths = call.options.mask.key_lengths;
  return lengths.empty() ? call.v.rows() : *std::max_element(lengths.begin(), lengths.end());
}

}  // namespace

bool is_decode_call(const AttentionCall& call) {
  constexpr std::int64_t kDecodeRows = 8;
  std::int64_t rows = call.q.batches() * call.q.heads() * call.q.rows();
  if (!call.options.ranges.empty()) {
    rows = 0;
    for (const AttentionRange& range : call.options.ranges) rows += range.count;
  }
  return rows < kDecodeRows * call.q.batches() * call.q.heads();
}

bool is_beyond_f32(const AttentionCall& call, const Exec& exec) {
  const auto is_wide = [](const AttentionStack& stack) {
    return !stack.is_quantized() && stack.elements().dtype == DType::f64;
  };
  if (!is_wide(call.q) && !is_wide(call.k) && !is_wide(call.v)) return false;
  // The host cannot know without waiting; a device does all float64 exactly.
  if (exec.device.kind != DeviceKind::cpu) return true;
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

AttentionFacts::AttentionFacts(const AttentionCall& call, bool log_sum_exp, bool is_decode,
                               const Exec& exec)
    : call_(call), exec_(exec), job_(call.job()), log_sum_exp_(log_sum_exp), is_decode_(is_decode) {
  if (const auto given = call.options.value_statistics; is_decode && !given.empty()) {
    values_ = call.v;
    value_lengths_.assign(call.options.mask.key_lengths.begin(),
                          call.options.mask.key_lengths.end());
    v_.assign(given.begin(), given.end());
    return;
  }
  values_step_ = is_decode ? value_step_for_decode(most_keys(call)) : 1;
  SomeRows some = some_rows(call.v, call.options.mask.key_lengths, values_step_);
  if (some.stack.rows() == call.v.rows()) values_step_ = 1;
  values_ = some.stack;
  value_lengths_ = std::move(some.lengths);
  v_ = statistics(values_, value_lengths_, values_.rows());
}

std::vector<AttentionStatistics> AttentionFacts::statistics(const AttentionStack& of,
                                                            std::span<const std::int64_t> lengths,
                                                            std::int64_t per_range) const {
  return statistics_of(call_, exec_, of, lengths, per_range);
}

std::vector<AttentionStatistics> AttentionFacts::statistics_of_copy(
    const AttentionStack& of, std::span<const std::int64_t> lengths, std::int64_t per_range,
    float* mean, bool hadamard) const {
  if (of.is_quantized() || of.rows() == 0) return statistics(of, lengths, per_range);
  const Tensor copy = prepared(call_, of, lengths, mean, hadamard, false, exec_);
  return statistics(AttentionStack(Operand(copy), kOp, "a copy"), lengths, per_range);
}

void AttentionFacts::find_query_statistics() {
  if (q_.empty())
    q_ =
        statistics_of_copy(call_.q, call_.options.mask.query_lengths, kRowsPerRange, nullptr, true);
}

// Statistics of one row in 8: enough for a guess; `balanced` takes values only.
void AttentionFacts::find_sampled_statistics() {
  if (!q_some_.empty()) return;
  constexpr std::int64_t kStep = 8;
  static_assert(kRowsPerRange % kStep == 0);
  const SomeRows q = some_rows(call_.q, call_.options.mask.query_lengths, kStep),
                 k = some_rows(call_.k, call_.options.mask.key_lengths, kStep);
  std::vector<float> mean(
      static_cast<std::size_t>(k.stack.batches() * k.stack.heads() * k.stack.cols()));
  q_some_ = statistics_of_copy(q.stack, q.lengths, kRowsPerRange / kStep, nullptr, true);
  k_some_ = statistics_of_copy(k.stack, k.lengths, k.stack.rows(), mean.data(), true);
}

void AttentionFacts::find_value_spread() {
  if (!v_spread_.empty() || call_.k.rows() == 0) return;
  v_mean_.resize(static_cast<std::size_t>(call_.v.batches() * call_.v.heads() * call_.v.cols()));
  // The mean is not subtracted from codes, nor in decode attention.
  v_spread_ =
      values_.is_quantized() || is_decode_
          ? v_
          : statistics_of_copy(values_, value_lengths_, values_.rows(), v_mean_.data(), false);
}

std::int64_t AttentionFacts::longest_query(const AttentionRange& range) {
  find_query_statistics();
  return q_[query_index(range)].row;
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
                   .softmax_scale = job_.softmax_scale,
                   .head_size = static_cast<double>(call_.q.cols()),
                   .q_type = type_of(call_.q),
                   .k_type = type_of(call_.k),
                   .v_type = type_of(call_.v),
                   .log_sum_exp = log_sum_exp_,
                   .sees_level = call_.sees_level(),
                   .soft_cap = job_.soft_cap != 0.0};
  if (call_.k.rows() == 0) return facts;
  facts.v = v_[facts.kv];
  if (!v_spread_.empty()) facts.v_spread = v_spread_[facts.kv];
  return facts;
}

RangeFacts AttentionFacts::facts_for(AttentionRung rung, const AttentionRange& range) {
  RangeFacts facts = facts_of(range);
  if (call_.k.rows() == 0 || !rounds_queries_or_keys(rung, facts)) return facts;
  find_query_statistics();
  facts.q = q_[query_index(range)];
  const std::span<const std::int64_t> lengths = call_.options.mask.key_lengths;
  const std::int64_t keys = call_.k.rows();
  const auto smoothed = [&](bool hadamard) {
    std::vector<float> mean(
        static_cast<std::size_t>(call_.k.batches() * call_.k.heads() * call_.k.cols()));
    return statistics_of_copy(call_.k, lengths, keys, mean.data(), hadamard);
  };
  if (rounds_given_keys(rung)) {
    if (k_given_.empty()) k_given_ = statistics(call_.k, lengths, keys);
    facts.k_given = k_given_[facts.kv];
  } else if (rung == AttentionRung::balanced) {
    if (k_rotated_.empty()) k_rotated_ = smoothed(true);
    facts.k_rotated = k_rotated_[facts.kv];
  } else {
    if (k_smooth_.empty()) k_smooth_ = smoothed(false);
    facts.k_smooth = k_smooth_[facts.kv];
  }
  return facts;
}

bool AttentionFacts::is_possible(AttentionRung rung, const AttentionRange& range,
                                 double tolerance) {
  RangeFacts facts = facts_of(range);
  if (!octavo::takes(rung, facts)) return false;
  // n_eff is at most the number of visible keys, more beside a sink only; under a mask, the first
  // or the last row of a range sees the most.
  double keys = 1.0;
  for (const std::int64_t row : {range.first, range.first + range.count - 1}) {
    const AttentionJob::Keys seen = job_.keys_of(range.batch, row);
    keys = std::max(keys, static_cast<double>(seen.end - seen.begin));
  }
  if (job_.left >= 0 && job_.right >= 0) keys = static_cast<double>(call_.k.rows());
  if (least_modelled_error(rung, facts, {.n_eff = keys}) > tolerance) return false;
  const bool guesses = rung == AttentionRung::balanced && call_.k.rows() > 0;
  if (guesses) {
    find_sampled_statistics();
    facts.q = q_some_[query_index(range)];
    facts.k_rotated = k_some_[facts.kv];
  } else {
    facts = facts_for(rung, range);
  }
  // For n keys with normal scores of variance s^2, n_eff is n exp(-s^2); twice that for the longest
  // query, and just that for the longest of some queries, is a guess. A wrong guess costs a more
  // expensive rung.
  const AttentionStatistics& k = rung == AttentionRung::balanced ? facts.k_rotated
                                 : rounds_given_keys(rung)       ? facts.k_given
                                                                 : facts.k_smooth;
  const double variance = facts.softmax_scale * facts.softmax_scale * facts.q.row_squares *
                          k.mean_squares / facts.head_size;
  const double most = std::min(keys, (guesses ? 1.0 : 2.0) * keys * std::exp(-variance));
  return !(modelled_error(rung, facts, {.n_eff = std::max(1.0, most)}) > tolerance);
}

ProbeChannels AttentionFacts::channels(const AttentionRange& range) {
  find_value_spread();
  const RangeFacts facts = facts_of(range);
  const auto in_effect = [](const AttentionStatistics& of) {
    const double channels = of.mean_squares / of.channel_squares;
    return channels >= 1.0 ? channels : 1.0;
  };
  return {.of_spread = in_effect(facts.v_spread), .of_values = in_effect(facts.v)};
}

double AttentionFacts::predicted(AttentionRung rung, const AttentionRange& range,
                                 const RowFacts& row) {
  return modelled_error(rung, facts_for(rung, range), row);
}

double AttentionFacts::error_without_averaging(AttentionRung rung, const AttentionRange& range) {
  return octavo::error_without_averaging(rung, facts_for(rung, range));
}

double AttentionFacts::largest_value(const AttentionRange& range) const {
  return facts_of(range).v.amax;
}

bool AttentionFacts::is_safe_for_any_row(AttentionRung rung, const AttentionRange& range,
                                         double tolerance) {
  const RangeFacts facts = facts_for(rung, range);
  constexpr double kLong = 8.0;  // no normal number is this many standard deviations from 0
  return octavo::error_without_averaging(rung, facts) <= tolerance &&
         facts.v.amax <= kLong * std::sqrt(facts.v.channel_squares);
}

MeanDeviation AttentionFacts::mean_deviation(const AttentionRange& range,
                                             std::span<const float> output, double share) {
  MeanDeviation mean_deviation;
  if (call_.k.rows() == 0) return mean_deviation;
  find_value_spread();
  const float* mean = mean_of(kv_index(range));
  for (std::size_t e = 0; e < output.size(); ++e) {
    const double number = static_cast<double>(output[e]) - share * static_cast<double>(mean[e]);
    mean_deviation.squares += number * number;
    raise(mean_deviation.most, std::abs(number));
  }
  return mean_deviation;
}

void AttentionFacts::find_output_statistics(const AttentionOperand& out,
                                            std::span<const float> shares) {
  find_value_spread();
  const std::int64_t batches = call_.q.batches(), heads = call_.q.heads(), rows = call_.q.rows(),
                     cols = call_.v.cols();
  // The output minus the mean of V, in f32.
  std::vector<float> mean(static_cast<std::size_t>(batches * heads * cols));
  for (std::int64_t batch = 0; shares.empty() && batch < batches; ++batch)
    for (std::int64_t head = 0; head < heads; ++head) {
      const float* from = mean_of(kv_index({.batch = batch, .head = head}));
      std::transform(from, from + cols, mean.begin() + (batch * heads + head) * cols,
                     [](float number) { return -number; });
    }
  const std::span<const std::int64_t> lengths = call_.options.mask.query_lengths;
  const Tensor copy = Tensor::values({batches, heads, rows, cols}, DType::f32);
  const AttentionStack mean_deviation(Operand(copy), kOp, "a copy");
  run_attention_prepare(exec_, call_.options,
                        {.batches = batches,
                         .heads = heads,
                         .from = out,
                         .to = mean_deviation.operand(),
                         .lengths = lengths.empty() ? nullptr : lengths.data(),
                         .mean = mean.data(),
                         .undo = true});
  subtract_means(copy.span<float>(), shares);
  outputs_ = statistics(mean_deviation, lengths, 1);
}

// Where sinks share weights the mean of V that a row deviates from is as much smaller.
void AttentionFacts::subtract_means(std::span<float> outputs, std::span<const float> shares) const {
  const auto cols = static_cast<std::size_t>(call_.v.cols());
  const std::int64_t rows = call_.q.rows(), heads = call_.q.heads();
  for (std::size_t at = 0; at < shares.size(); ++at) {
    const std::int64_t head = static_cast<std::int64_t>(at) / rows;
    const float* mean = mean_of(kv_index({.batch = head / heads, .head = head % heads}));
    for (std::size_t e = 0; e < cols; ++e) outputs[at * cols + e] -= shares[at] * mean[e];
  }
}

MeanDeviation AttentionFacts::deviation_of_output(const AttentionRange& range,
                                                  std::int64_t row) const {
  const AttentionStatistics& output = outputs_[static_cast<std::size_t>(
      (range.batch * call_.q.heads() + range.head) * call_.q.rows() + row)];
  return {output.row_squares, output.amax};
}

}  // namespace octavo
