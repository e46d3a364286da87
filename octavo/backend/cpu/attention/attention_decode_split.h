// Split-KV of decode attention: one split of the keys of a head, the partial results of its query
// rows, and their merge.
#pragma once

#include <cstdint>
#include <limits>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// The partial result of a row over some keys: running maximum, its integer base, sums. Sums of
// weighted values follow it in memory.
struct DecodePartial {
  float top = -std::numeric_limits<float>::infinity(),
        base = -std::numeric_limits<float>::infinity();
  float sum = 0.0F, weight_squares = 0.0F;
  float norms = 0.0F;  // DecodeScores::norms
};
inline constexpr std::int64_t kDecodeHeader = 16;  // floats before the weighted values of a row

inline std::int64_t decode_row_floats(const AttentionJob& job) {
  return kDecodeHeader + round_up(job.v.first.cols(), 16);
}
// Query rows that share a KV head (queries times the GQA group).
inline std::int64_t decode_rows_of_head(const AttentionJob& job) {
  return job.queries * (job.heads / job.kv_heads);
}

struct DecodeSplit {
  std::int64_t batch, kv_head, first, last;  // keys [first, last)
  // The rows to recompute, with scores in f32; null: all rows, with the precision that norms allow.
  const std::uint8_t* only;
};
// `partials` has decode_row_floats for each row of the head.
void attend_split(const Isa& isa, const AttentionMethod& method, const AttentionJob& job,
                  const DecodeSplit& split, float* partials);
// Merges the partial result of a later split into a row's partial.
void merge_split(float* to, const float* from, std::int64_t width);

}  // namespace octavo::cpu
