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
void raise(float* largest, float value) {
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

void AttentionEpilogue::operator()(std::int64_t batch, std::int64_t head, std::int64_t row,
                                   const RowSums& sums) const {
  const Matrix out = job_.out.at(batch, head).values;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool empty = sums.top == -kInfinity, poisoned = !(sums.top < kInfinity);
  alignas(64) float values[kMaxHeadSize];
  if (sums.pitch == 1) {  // a loop that vectorises
    for (std::int64_t e = 0; e < out.cols; ++e) values[e] = sums.values[e] / sums.sum * sums.unit;
  } else {
    for (std::int64_t e = 0; e < out.cols; ++e)
      values[e] = sums.values[e * sums.pitch] / sums.sum * sums.unit;
  }
  if (sums.channels != nullptr)
    for (std::int64_t e = 0; e < out.cols; ++e) values[e] *= sums.channels[e];
  if (empty || poisoned)
    std::fill_n(values, out.cols, empty ? 0.0F : std::numeric_limits<float>::quiet_NaN());
  store_(out, row, values);

  const bool asks = job_.p_amax != nullptr || job_.largest_weight != nullptr;
  const float largest = !asks || empty || poisoned ? 0.0F : std::exp2(sums.top - sums.base);
  if (job_.p_amax != nullptr) raise(job_.p_amax, largest);
  const std::int64_t at = (batch * job_.heads + head) * job_.queries + row;
  if (job_.largest_weight != nullptr)
    job_.largest_weight[at] = poisoned ? std::numeric_limits<float>::quiet_NaN()
                              : empty  ? 0.0F
                                       : largest * weight_factor_ / sums.sum;
  if (job_.log_sum_exp != nullptr) log_sum_exp(batch, head, row, sums, poisoned, empty);
}

void AttentionEpilogue::log_sum_exp(std::int64_t batch, std::int64_t head, std::int64_t row,
                                    const RowSums& sums, bool poisoned, bool empty) const {
  double result = -std::numeric_limits<double>::infinity();
  if (poisoned) result = std::numeric_limits<double>::quiet_NaN();
  if (!poisoned && !empty) {
    const auto base = static_cast<double>(sums.base);
    result = ((job_.bias.first != nullptr ? unbent(base) : base) +
              std::log2(static_cast<double>(sums.sum) / static_cast<double>(weight_factor_))) *
             std::numbers::ln2;
  }
  if (job_.key_shift != nullptr && !empty) {
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
