// What results show of rows: which of them are not like those that a rung was chosen by.
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

  // What a job is to write: the results, and what is looked at here.
  void write_with(AttentionJob& job);

  // The rows of a choice, in order, when they are done. n_eff is infinite where one sees nothing.
  // `like`: those that were looked at before; `alike`: how many keys act as one, by those.
  [[nodiscard]] std::vector<RowFacts> facts_of(const AttentionChoice& choice,
                                               std::span<const std::int64_t> like, double alike);

 private:
  [[nodiscard]] std::size_t index_of(const AttentionRange& range, std::int64_t row) const;

  const AttentionCall& call_;
  const AttentionResult& result_;
  AttentionFacts& facts_;
  bool has_outputs_ = false;
  std::vector<float> largest_weight_, own_lse_;
};

}  // namespace octavo
