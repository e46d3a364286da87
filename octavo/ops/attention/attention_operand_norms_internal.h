// Norms of the operands of a call, measured once, and of what a row may see of them.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/ops/attention/attention_bound_internal.h"
#include "octavo/ops/attention/attention_call_internal.h"

namespace octavo {

// An operand as given, after smoothing and rotation, and what is used instead of it.
struct NormedOperand {
  AttentionOperand given{};
  const AttentionOperand* used = nullptr;  // null: the given values, rounded
  double prepared = 0.0;  // how far smoothing and rotation are off, relative to a row's norm
};

class AttentionNorms {
 public:
  // values: what they are rounded to where nothing else is used; f64: not rounded.
  AttentionNorms(const AttentionCall& call, const NormedOperand& q, const NormedOperand& k,
                 const NormedOperand& v, DType values, const Exec& exec);

  [[nodiscard]] QueryNorms query(std::int64_t batch, std::int64_t head, std::int64_t row) const;
  // Of keys before `end`, and perhaps some after.
  [[nodiscard]] const KeyNorms& keys(std::int64_t batch, std::int64_t kv_head,
                                     std::int64_t end) const {
    return keys_[range_of(batch, kv_head, end)];
  }
  [[nodiscard]] const ValueNorms& values(std::int64_t batch, std::int64_t kv_head,
                                         std::int64_t end) const {
    return values_[range_of(batch, kv_head, end)];
  }

  // Of all keys of a head, whether a row sees them or not: what is common to them, their mean and
  // the scales of channels, comes from all.
  [[nodiscard]] const KeyNorms& all_keys(std::int64_t batch, std::int64_t kv_head) const {
    return keys(batch, kv_head, ranges_ * kRange);
  }
  [[nodiscard]] const ValueNorms& all_values(std::int64_t batch, std::int64_t kv_head) const {
    return values(batch, kv_head, ranges_ * kRange);
  }

 private:
  // Keys that share statistics: early rows of a causal mask see few of them.
  static constexpr std::int64_t kRange = 256;

  [[nodiscard]] std::size_t range_of(std::int64_t batch, std::int64_t kv_head,
                                     std::int64_t end) const;
  void add_keys(const NormedOperand& k, DType values, const Exec& exec);
  void add_values(const NormedOperand& v, DType values, const Exec& exec);

  const AttentionCall& call_;
  std::int64_t ranges_ = 0;  // of a head
  double q_prepared_ = 0.0;
  std::vector<double> q_squares_, q_errors_;
  std::vector<KeyNorms> keys_;      // [batches, KV heads, ranges], of all keys up to a range's end
  std::vector<ValueNorms> values_;  // the same
};

}  // namespace octavo
