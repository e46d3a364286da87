// Scores of decode attention: dots by the decode kernels, and again in f32 or f64 where those are
// not precise enough or not finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/attention/attention_operand_rows.h"
#include "octavo/backend/cpu/attention/power_unit.h"

namespace octavo::cpu {

// Of a block of keys: from the first that a row sees to one past the last.
struct DecodeSeen {
  std::int64_t begin, end;
  bool operator==(const DecodeSeen&) const = default;
};

// The power-of-two unit of packed elements whose largest magnitude this is.
inline float decode_unit(float amax) {
  return power_of_two_at_least(amax / kMaxPackedDecode, -119);
}

class DecodeScores {
 public:
  // `wide`: sums that kernels take in f16 are taken in f32, whatever the norms are.
  DecodeScores(const Isa& isa, const DecodeKernels& decode_kernels, const AttentionJob& job,
               std::int64_t batch, std::int64_t kv_head, bool wide);

  // Packs row r of those that share the KV head, before it is scored.
  void pack_query(std::int64_t r);
  // Selects keys [key, key + keys), at most kDecodeKeys, for the next calls of `score`.
  void select_keys(std::int64_t key, std::int64_t keys);
  // score[g][i] is the score of row r + g and key i in units of log2; up to DecodeKernels::queries
  // rows. It does not depend on the other rows of the call.
  void score(std::int64_t r, int count, const DecodeSeen& seen, float (*score)[kDecodeKeys]);
  // An upper bound of |q| |k| softmax_scale of row r and the keys whose scores were summed in f16.
  [[nodiscard]] double norms(std::int64_t r) const { return norms_[r]; }

 private:
  [[nodiscard]] std::int64_t head_of(std::int64_t r) const {
    return kv_head_ * (job_.heads / job_.kv_heads) + r / job_.queries;
  }
  [[nodiscard]] std::int64_t row_of(std::int64_t r) const { return r % job_.queries; }
  [[nodiscard]] double norms_with(std::int64_t r, double key) const;
  [[nodiscard]] double bound_of_norms(const float* most_row_squares, const DecodeSeen& seen) const;
  [[nodiscard]] double largest_norm(const DecodeSeen& seen) const;
  bool find_large(std::int64_t r, int count, const float* most_row_squares, const DecodeSeen& seen,
                  bool* large);
  void score_wide(std::int64_t r, int count, const bool* large, float (*score)[kDecodeKeys]) const;
  void score_nonfinite(std::int64_t r, float* score) const;

  const Isa& isa_;
  const DecodeKernels& kernels_;
  const AttentionJob& job_;
  std::int64_t batch_, kv_head_, key_ = 0, keys_ = 0;
  bool wide_;
  GemmOperand operand_;
  AttentionRows k_;
  alignas(64) std::byte packed_queries_[kMaxDecodeRows][kMaxHeadSize * 4];
  // Of a row: the unit of its packed elements; that times the factor of its scores; its norm.
  float q_unit_[kMaxDecodeRows] = {}, unit_[kMaxDecodeRows] = {};
  double q_norm_[kMaxDecodeRows] = {}, norms_[kMaxDecodeRows] = {};
  bool nonfinite_[kMaxDecodeRows] = {};
  alignas(64) float k_scale_[kDecodeKeys];
};

}  // namespace octavo::cpu
