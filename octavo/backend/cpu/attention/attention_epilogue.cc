#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>

#include "octavo/backend/cpu/attention/attention_bias.h"
#include "octavo/backend/cpu/attention/attention_block.h"

namespace octavo::cpu {
namespace {

// Atomic maximum: any thread may run the epilogue of a row, and the order does not matter.
void raise_shared(float* largest, float value) {
  const std::atomic_ref<float> shared(*largest);
  float before = shared.load(std::memory_order_relaxed);
  while (before < value &&
         !shared.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

AttentionEpilogue::AttentionEpilogue(const Isa& isa, const AttentionJob& job, float weight_factor)
    : isa_(isa),
      job_(job),
      store_(isa, job.out.first.values.dtype),
      weight_factor_(weight_factor) {}

// Keys beside the sink, whose log-sum-exp is that of weights as they were stored. Padding has no
// sink.
BesideSink AttentionEpilogue::beside(std::int64_t batch, std::int64_t head, std::int64_t row,
                                     const RowSums& sums) const {
  double log2_sum = -std::numeric_limits<double>::infinity();
  if (sums.top > -std::numeric_limits<float>::infinity()) {
    const auto base = static_cast<double>(sums.base);
    log2_sum = (job_.bias.first != nullptr ? unbent(base) : base) +
               std::log2(static_cast<double>(sums.sum) / static_cast<double>(weight_factor_));
  }
  if (row >= rows_in(job_, batch)) return {.log2_sum = log2_sum};
  return beside_sink(job_.sinks, head, log2_sum);
}

float AttentionEpilogue::sum_with_sink(std::int64_t batch, std::int64_t head, std::int64_t row,
                                       const RowSums& sums) const {
  if (!job_.sinks.exist()) return sums.sum;
  return static_cast<float>(static_cast<double>(sums.sum) / beside(batch, head, row, sums).share);
}

void AttentionEpilogue::operator()(std::int64_t batch, std::int64_t head, std::int64_t row,
                                   const RowSums& sums) const {
  // Not job_.out.at(): a copy of its structs loads at once what was just stored in parts. Such a
  // load waits until all earlier stores have left the core, those of the row before included.
  Matrix out = job_.out.first.values;
  if (out.data != nullptr)
    out.data = static_cast<std::byte*>(out.data) + batch * job_.out.batch_pitch +
               head * job_.out.head_pitch;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool empty = sums.top == -kInfinity;
  bool poisoned = !(sums.top < kInfinity);
  BesideSink keys;
  if (!poisoned && (job_.sinks.exist() || job_.log_sum_exp != nullptr)) {
    keys = beside(batch, head, row, sums);
    poisoned = keys.poisoned;
  }
  const auto share = static_cast<float>(keys.share);
  alignas(64) float values[kMaxHeadSize];
  if (sums.pitch == 1) {  // a loop that vectorises
    for (std::int64_t e = 0; e < out.cols; ++e) values[e] = sums.values[e] / sums.sum * sums.unit;
  } else {
    for (std::int64_t e = 0; e < out.cols; ++e)
      values[e] = sums.values[e * sums.pitch] / sums.sum * sums.unit;
  }
  if (sums.channels != nullptr)
    for (std::int64_t e = 0; e < out.cols; ++e) values[e] *= sums.channels[e];
  if (job_.sinks.exist())
    for (std::int64_t e = 0; e < out.cols; ++e) values[e] *= share;
  if (job_.dropout.exists()) {
    const auto factor = static_cast<float>(job_.dropout.factor());
    for (std::int64_t e = 0; e < out.cols; ++e) values[e] *= factor;
  }
  if (poisoned || empty)
    std::fill_n(values, out.cols, poisoned ? std::numeric_limits<float>::quiet_NaN() : 0.0F);
  store_(out, row, values);

  const bool asks =
      job_.p_amax != nullptr || job_.largest_weight != nullptr || job_.weight_squares != nullptr;
  const float largest = !asks || empty || poisoned ? 0.0F : std::exp2(sums.top - sums.base);
  if (job_.p_amax != nullptr) raise_shared(job_.p_amax, largest);
  const std::int64_t at = (batch * job_.heads + head) * job_.queries + row;
  const float weight = poisoned ? std::numeric_limits<float>::quiet_NaN()
                       : empty  ? 0.0F
                                : largest * weight_factor_ / sums.sum * share;
  if (job_.largest_weight != nullptr) job_.largest_weight[at] = weight;
  if (job_.weight_squares != nullptr) {
    // NaN stays.
    const float part = share / sums.sum, squares = sums.weight_squares * part * part;
    job_.weight_squares[at] = poisoned || empty ? weight : std::min(weight, squares);
  }
  if (job_.log_sum_exp != nullptr)
    log_sum_exp(batch, head, row,
                poisoned ? std::numeric_limits<double>::quiet_NaN() : keys.log2_sum, !empty);
}

void AttentionEpilogue::log_sum_exp(std::int64_t batch, std::int64_t head, std::int64_t row,
                                    double log2_sum, bool shifts) const {
  double result = log2_sum * std::numbers::ln2;
  if (job_.key_shift != nullptr && shifts) {
    alignas(64) float q[kMaxHeadSize];
    const AttentionRows rows(isa_, job_.q.at(batch, head), job_.values, FactoredScales::none);
    rows.row(row, q);
    const std::int64_t depth = rows.cols();
    const float* shift = job_.key_shift + (batch * job_.kv_heads + job_.kv_head(head)) * depth;
    double along = 0.0;
    for (std::int64_t d = 0; d < depth; ++d)
      along += static_cast<double>(q[d]) * static_cast<double>(shift[d]);
    result += along * job_.softmax_scale;
  }
  // A bias of the lowest f32 must not give -inf, which means that a row sees no key.
  constexpr double kMax = std::numeric_limits<float>::max();
  if (std::isfinite(result)) result = std::clamp(result, -kMax, kMax);
  job_.log_sum_exp[(batch * job_.heads + head) * job_.queries + row] = static_cast<float>(result);
}

}  // namespace octavo::cpu
