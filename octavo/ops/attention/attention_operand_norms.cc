#include "octavo/ops/attention/attention_operand_norms_internal.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "octavo/base/running_extremes.h"
#include "octavo/convert/convert.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

// A head's channels over all ranges so far.
void add(AttentionChannel& to, const AttentionChannel& from) {
  to.center = from.center;
  to.least = std::min(to.least, from.least);
  to.most = std::max(to.most, from.most);
  to.sum += from.sum;
  to.squares += from.squares;
  to.fourth_powers += from.fourth_powers;
  raise(to.error, from.error);
  to.error_squares += from.error_squares;
}

// What terms of sums of squares, and of fourth powers, lose where they are too small for f32; and
// norms.
constexpr double kLostSquares = 0x1p-110, kLostNorm = 0x1p-55;

double error_norm(double squares) { return std::sqrt(squares) + kLostNorm; }

// Rows before `end` that are measured, at least one.
double rows_before(std::span<const std::int64_t> lengths, std::int64_t batch, std::int64_t end) {
  if (!lengths.empty()) end = std::min(end, lengths[static_cast<std::size_t>(batch)]);
  return static_cast<double>(std::max<std::int64_t>(1, end));
}

// 0 for values. A NaN makes its own values NaN alone.
double largest_scale(const Operand& v) {
  const QuantizedTensor* const tensor = v.quantized();
  if (tensor == nullptr) return 0.0;
  const auto most = [](const View& scales) {
    if (scales.dtype != DType::code) return static_cast<double>(amax(scales, {}, AmaxOf::not_nan));
    return static_cast<double>(amax(decode(scales, DType::f32).view(), {}, AmaxOf::not_nan));
  };
  const Tensor& of_tensor = tensor->rowwise.tensor_scale;
  return most(tensor->rowwise.scales.view()) *
         (of_tensor.owner() != nullptr ? most(of_tensor.view()) : 1.0);
}

}  // namespace

AttentionNorms::AttentionNorms(const AttentionCall& call, const NormedOperand& q,
                               const NormedOperand& k, const NormedOperand& v, DType values,
                               const Exec& exec)
    : call_(call),
      ranges_(std::max<std::int64_t>(1, (call.keys() + kRange - 1) / kRange)),
      q_prepared_(q.prepared) {
  const std::span<const std::int64_t> lengths = call.options.mask.query_lengths;
  const auto rows = static_cast<std::size_t>(call.q.batches() * call.q.heads() * call.q.rows());
  q_squares_.assign(rows, 0.0);
  q_errors_.assign(rows, 0.0);
  run_attention_norms(exec, call.options,
                      {.batches = call.q.batches(),
                       .heads = call.q.heads(),
                       .given = q.given,
                       .used = q.used,
                       .values = values,
                       .lengths = lengths.empty() ? nullptr : lengths.data(),
                       .row_squares = q_squares_.data(),
                       .row_error_squares = q_errors_.data()});
  add_keys(k, values, exec);
  add_values(v, values, exec);
}

void AttentionNorms::add_keys(const NormedOperand& k, DType values, const Exec& exec) {
  const std::int64_t heads = call_.k.batches() * call_.k.heads(), rows = call_.keys(),
                     cols = call_.k.cols();
  keys_.resize(static_cast<std::size_t>(heads * ranges_));
  if (heads * rows == 0) return;
  std::vector<double> squares(static_cast<std::size_t>(heads * rows)), errors(squares.size());
  // Channels of K are of the probabilistic bound alone.
  const bool has_channels = call_.options.probabilistic_bound.data != nullptr;
  std::vector<AttentionChannel> channels(
      static_cast<std::size_t>(has_channels ? heads * ranges_ * cols : 0));
  const std::span<const std::int64_t> lengths = call_.options.mask.key_lengths;
  run_attention_norms(exec, call_.options,
                      {.batches = call_.k.batches(),
                       .heads = call_.k.heads(),
                       .given = k.given,
                       .used = k.used,
                       .values = values,
                       .lengths = lengths.empty() ? nullptr : lengths.data(),
                       .row_squares = squares.data(),
                       .row_error_squares = errors.data(),
                       .channels = has_channels ? channels.data() : nullptr,
                       .rows_per_range = kRange});
  for (std::int64_t head = 0; head < heads; ++head) {
    KeyNorms norms;
    double sum_of_errors = 0.0;
    std::vector<AttentionChannel> sums(static_cast<std::size_t>(cols));
    for (std::int64_t range = 0; range < ranges_; ++range) {
      const std::int64_t end = std::min(rows, (range + 1) * kRange);
      for (std::int64_t row = range * kRange; row < end; ++row) {
        const auto at = static_cast<std::size_t>(head * rows + row);
        const double length = std::sqrt(squares[at]) + kLostNorm;
        raise(norms.longest, length);
        raise(norms.error, error_norm(errors[at]) + k.prepared * length);
        sum_of_errors += errors[at];
      }
      const double seen = rows_before(lengths, head / call_.k.heads(), end);
      norms.spread_squares = norms.error_squares = 0.0;
      for (std::int64_t d = 0; has_channels && d < cols; ++d) {
        AttentionChannel& sum = sums[static_cast<std::size_t>(d)];
        add(sum, channels[static_cast<std::size_t>((head * ranges_ + range) * cols + d)]);
        raise(norms.spread_squares, sum.squares / seen);
        raise(norms.error_squares, sum.error_squares / seen);
      }
      if (sum_of_errors > 0.0)
        norms.error_squares *= norms.error * norms.error / (sum_of_errors / seen);
      keys_[static_cast<std::size_t>(head * ranges_ + range)] = norms;
    }
  }
}

void AttentionNorms::add_values(const NormedOperand& v, DType values, const Exec& exec) {
  const std::int64_t heads = call_.v.batches() * call_.v.heads(), rows = call_.keys(),
                     cols = call_.v.cols();
  values_.resize(static_cast<std::size_t>(heads * ranges_));
  if (heads * rows == 0) return;
  std::vector<AttentionChannel> channels(static_cast<std::size_t>(heads * ranges_ * cols));
  const std::span<const std::int64_t> lengths = call_.options.mask.key_lengths;
  run_attention_norms(exec, call_.options,
                      {.batches = call_.v.batches(),
                       .heads = call_.v.heads(),
                       .given = v.given,
                       .used = v.used,
                       .values = values,
                       .lengths = lengths.empty() ? nullptr : lengths.data(),
                       .channels = channels.data(),
                       .rows_per_range = kRange});
  const bool has_sink = call_.options.sinks.data != nullptr;
  const double scale = largest_scale(call_.v_operand);
  for (std::int64_t head = 0; head < heads; ++head) {
    std::vector<AttentionChannel> sums(static_cast<std::size_t>(cols));
    for (std::int64_t range = 0; range < ranges_; ++range) {
      ValueNorms norms{.rows = rows_before(lengths, head / call_.v.heads(),
                                           std::min(rows, (range + 1) * kRange))};
      norms.largest_scale = scale;
      for (std::int64_t e = 0; e < cols; ++e) {
        AttentionChannel& sum = sums[static_cast<std::size_t>(e)];
        add(sum, channels[static_cast<std::size_t>((head * ranges_ + range) * cols + e)]);
        // Extremes leave NaN out, sums do not: a channel of NaN alone is no channel without rows.
        raise(norms.squares, sum.squares + kLostSquares);
        if (!(sum.error_squares >= 0.0)) raise(norms.error, sum.error_squares);
        if (!(sum.least <= sum.most)) continue;
        const double least = has_sink ? std::min(sum.least, 0.0) : sum.least,
                     most = has_sink ? std::max(sum.most, 0.0) : sum.most;
        raise(norms.range, most - least);
        raise(norms.largest, std::max(std::abs(sum.least), std::abs(sum.most)));
        raise(norms.center, std::abs(sum.center));
        raise(norms.mean, std::abs(sum.center + sum.sum / norms.rows));
        raise(norms.fourth_powers, sum.fourth_powers + kLostSquares);
        raise(norms.error, sum.error);
        raise(norms.error_squares, sum.error_squares + kLostSquares);
      }
      values_[static_cast<std::size_t>(head * ranges_ + range)] = norms;
    }
  }
}

QueryNorms AttentionNorms::query(std::int64_t batch, std::int64_t head, std::int64_t row) const {
  const auto at = static_cast<std::size_t>((batch * call_.q.heads() + head) * call_.q.rows() + row);
  const double length = std::sqrt(q_squares_[at]) + kLostNorm;
  return {.length = length, .error = error_norm(q_errors_[at]) + q_prepared_ * length};
}

std::size_t AttentionNorms::range_of(std::int64_t batch, std::int64_t kv_head,
                                     std::int64_t end) const {
  const std::int64_t range =
      std::clamp<std::int64_t>((end + kRange - 1) / kRange - 1, 0, ranges_ - 1);
  return static_cast<std::size_t>((batch * call_.k.heads() + kv_head) * ranges_ + range);
}

}  // namespace octavo
