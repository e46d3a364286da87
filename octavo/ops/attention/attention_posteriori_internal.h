// Posteriori check of `auto`: from the results (largest weight, log-sum-exp, output), finds rows
// unlike the sample rows that the rung was chosen by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "octavo/ops/attention/attention_auto_internal.h"
#include "octavo/ops/attention/attention_statistics_internal.h"

namespace octavo {

class PosterioriCheck {
 public:
  PosterioriCheck(const AttentionCall& call, const AttentionResult& result, AttentionFacts& facts);

  // Sets the outputs of a job: the results, and the per-row data that the check reads.
  void write_with(AttentionJob& job);

  // Facts of the rows of a choice, in order, after they were computed. n_eff is infinite where a
  // row sees no key. `like`: the sample rows; `alike`: how many keys act as one, estimated from
  // them.
  [[nodiscard]] std::vector<RowFacts> facts_of(const AttentionChoice& choice,
                                               std::span<const std::int64_t> like, double alike);

 private:
  void find_shares(const float* lse);
  [[nodiscard]] std::size_t index_of(const AttentionRange& range, std::int64_t row) const;

  const AttentionCall& call_;
  const AttentionResult& result_;
  AttentionFacts& facts_;
  bool has_outputs_ = false;
  std::vector<float> largest_weight_, own_lse_;
  std::vector<float> shares_;  // of the keys of each row, beside a sink; empty without sinks
};

}  // namespace octavo
