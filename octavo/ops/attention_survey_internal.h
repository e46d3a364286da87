// What `auto` knows of a call: magnitudes of Q, K, V and of the output, found when they are asked
// for, and what the prediction makes of them for a range of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/ops/attention_call_internal.h"
#include "octavo/ops/attention_predict_internal.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Are there numbers of float64, or scores of such, that f32 does not have? NaN counts as one.
[[nodiscard]] bool is_beyond_f32(const AttentionCall& call, const Exec& exec);

class AttentionFacts {
 public:
  static constexpr std::int64_t kRowsPerRange = 128;

  AttentionFacts(const AttentionCall& call, bool log_sum_exp, const Exec& exec);

  // Ranges lie in kRowsPerRange rows of their head, counted from its first.
  [[nodiscard]] std::int64_t longest_query(const AttentionRange& range) const {
    return q_[query_index(range)].row;
  }
  [[nodiscard]] bool takes(AttentionRung rung, const AttentionRange& range) const {
    return octavo::takes(rung, facts_of(range));
  }
  // How many channels of V there are in effect.
  [[nodiscard]] double channels(const AttentionRange& range) const;
  [[nodiscard]] double predicted(AttentionRung rung, const AttentionRange& range,
                                 const RowFacts& row);
  [[nodiscard]] double error_without_averaging(AttentionRung rung, const AttentionRange& range);
  // Is no row of this rung outside the tolerance, whatever it looks at?
  [[nodiscard]] bool is_tame(AttentionRung rung, const AttentionRange& range, double tolerance);

  // Of V, for the rows of a range.
  [[nodiscard]] double largest_value(const AttentionRange& range) const;

  // As in attention_predict_internal.h, of an output.
  [[nodiscard]] double different_keys(const AttentionRange& range,
                                      std::span<const float> output) const;
  // Looks at all rows of the output, which are written.
  void survey_outputs(const AttentionOperand& out);
  [[nodiscard]] double different_keys_of_output(const AttentionRange& range,
                                                std::int64_t row) const;

 private:
  [[nodiscard]] std::vector<AttentionSurvey> survey(const AttentionStack& of,
                                                    std::span<const std::int64_t> lengths,
                                                    std::int64_t per_range) const;
  [[nodiscard]] Tensor turned(const AttentionStack& of, std::span<const std::int64_t> lengths,
                              float* mean, bool hadamard) const;
  [[nodiscard]] RangeFacts facts_of(const AttentionRange& range) const;
  [[nodiscard]] RangeFacts facts_with_keys(AttentionRung rung, const AttentionRange& range);
  [[nodiscard]] std::size_t query_index(const AttentionRange& range) const;
  [[nodiscard]] std::size_t kv_index(const AttentionRange& range) const;
  [[nodiscard]] const float* mean_of(std::size_t kv) const {
    return v_mean_.data() + kv * static_cast<std::size_t>(call_.v.cols());
  }

  const AttentionCall& call_;
  const Exec& exec_;
  bool log_sum_exp_;
  std::vector<AttentionSurvey> q_, k_turned_, k_smooth_, k_given_, v_, v_spread_, outputs_;
  std::vector<float> v_mean_;  // [B, Hkv, E]; zeros where V is codes
};

}  // namespace octavo
