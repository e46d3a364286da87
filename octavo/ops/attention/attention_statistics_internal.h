// Statistics of `auto`: magnitudes of Q, K, V and of the output, computed lazily, and the error
// model evaluated on them for a range of rows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/ops/attention/attention_call_internal.h"
#include "octavo/ops/attention/attention_error_model_internal.h"
#include "octavo/ops/attention/attention_probe_internal.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Are there float64 values, or scores of them, beyond the range of f32? NaN counts as one.
[[nodiscard]] bool is_beyond_f32(const AttentionCall& call, const Exec& exec);

// Sampling costs two rows per range, and statistics a pass over K and V. True for decode attention:
// so few query rows that both are left out.
[[nodiscard]] bool is_decode_call(const AttentionCall& call);

class AttentionFacts {
 public:
  static constexpr std::int64_t kRowsPerRange = 128;

  // is_decode: decode attention: statistics of all of V would cost more than the rows of Q.
  AttentionFacts(const AttentionCall& call, bool log_sum_exp, bool is_decode, const Exec& exec);

  // A range lies within one aligned group of kRowsPerRange rows of its head.
  [[nodiscard]] std::int64_t longest_query(const AttentionRange& range);
  [[nodiscard]] bool takes(AttentionRung rung, const AttentionRange& range) const {
    return octavo::takes(rung, facts_of(range));
  }
  // The effective number of channels of V and of its spread.
  [[nodiscard]] ProbeChannels channels(const AttentionRange& range);
  [[nodiscard]] double predicted(AttentionRung rung, const AttentionRange& range,
                                 const RowFacts& row);
  // Could this rung meet the tolerance for the range? Uses as few statistics as possible, and a
  // guess of n_eff where no row was sampled.
  [[nodiscard]] bool is_possible(AttentionRung rung, const AttentionRange& range, double tolerance);
  [[nodiscard]] double error_without_averaging(AttentionRung rung, const AttentionRange& range);
  // Does every possible row meet the tolerance on this rung, whatever its weights?
  [[nodiscard]] bool is_safe_for_any_row(AttentionRung rung, const AttentionRange& range,
                                         double tolerance);

  // Does this rung round neither Q nor K nor V?
  [[nodiscard]] bool is_as_given(AttentionRung rung, const AttentionRange& range) const {
    return octavo::is_as_given(rung, facts_of(range));
  }
  // The statistics of V are of every values_step-th row.
  [[nodiscard]] std::int64_t values_step() const { return values_step_; }

  // The largest magnitude of V, for the rows of a range.
  [[nodiscard]] double largest_value(const AttentionRange& range) const;

  // As in attention_error_model_internal.h.
  [[nodiscard]] double different_keys(const AttentionRange& range,
                                      const MeanDeviation& mean_deviation) const {
    return octavo::different_keys(facts_of(range), mean_deviation);
  }
  [[nodiscard]] double keys_alike(const AttentionRange& range, const KeysAlike& rows) const {
    return rows.number(facts_of(range));
  }
  [[nodiscard]] double negligible_score(const AttentionRange& range, double tolerance) const {
    return octavo::negligible_score(facts_of(range), tolerance);
  }
  // The magnitude of the scores of a row with this log-sum-exp. 0 where a bias is so large that f64
  // loses q k too.
  [[nodiscard]] double size_of_scores(float log_sum_exp) const {
    const double size = std::abs(static_cast<double>(log_sum_exp));
    return job_.bias.first != nullptr && size > 0x1p+64 ? 0.0 : size;
  }
  // `share`: of the keys, beside a sink.
  [[nodiscard]] MeanDeviation mean_deviation(const AttentionRange& range,
                                             std::span<const float> output, double share);
  // Computes statistics of all rows of the output, which must be written. `shares`: of the keys of
  // each row, beside a sink; empty where there are no sinks.
  void find_output_statistics(const AttentionOperand& out, std::span<const float> shares);
  [[nodiscard]] MeanDeviation deviation_of_output(const AttentionRange& range,
                                                  std::int64_t row) const;

 private:
  [[nodiscard]] std::vector<AttentionStatistics> statistics(const AttentionStack& of,
                                                            std::span<const std::int64_t> lengths,
                                                            std::int64_t per_range) const;
  // Statistics of values after smoothing, rotation or both; of codes as they are.
  [[nodiscard]] std::vector<AttentionStatistics> statistics_of_copy(
      const AttentionStack& of, std::span<const std::int64_t> lengths, std::int64_t per_range,
      float* mean, bool hadamard) const;
  // The statistics known already, without Q and K; and with those that the error model of a rung
  // needs.
  [[nodiscard]] RangeFacts facts_of(const AttentionRange& range) const;
  [[nodiscard]] RangeFacts facts_for(AttentionRung rung, const AttentionRange& range);
  void find_query_statistics();
  void find_sampled_statistics();
  void find_value_spread();
  void subtract_means(std::span<float> outputs, std::span<const float> shares) const;
  [[nodiscard]] std::size_t query_index(const AttentionRange& range) const;
  [[nodiscard]] std::size_t kv_index(const AttentionRange& range) const;
  [[nodiscard]] const float* mean_of(std::size_t kv) const {
    return v_mean_.data() + kv * static_cast<std::size_t>(call_.v.cols());
  }

  const AttentionCall& call_;
  const Exec& exec_;
  AttentionJob job_;
  bool log_sum_exp_, is_decode_;
  AttentionStack values_;  // V, or every values_step-th row of it
  std::vector<std::int64_t> value_lengths_;
  std::int64_t values_step_ = 1;
  // Computed lazily, except V.
  std::vector<AttentionStatistics> q_, k_rotated_, k_smooth_, k_given_, v_, v_spread_, outputs_;
  std::vector<AttentionStatistics> q_some_, k_some_;  // as q_ and k_rotated_, of some rows
  std::vector<float> v_mean_;  // [B, Hkv, E]; zeros where it is not subtracted
};

}  // namespace octavo
