// A piece of the keys of a head for few query rows: what its rows have after it.
#pragma once

#include <cstdint>
#include <limits>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// What a row has after some keys. Sums follow.
struct DecodePartial {
  float top = -std::numeric_limits<float>::infinity(),
        base = -std::numeric_limits<float>::infinity();
  float sum = 0.0F, weight_squares = 0.0F;
  float norms = 0.0F;  // DecodeScores::norms
};
inline constexpr std::int64_t kDecodeHeader = 16;  // floats before the sums of a row

inline std::int64_t decode_row_floats(const AttentionJob& job) {
  return kDecodeHeader + round_up(job.v.first.cols(), 16);
}
// Rows that share a head of keys.
inline std::int64_t decode_rows_of_head(const AttentionJob& job) {
  return job.queries * (job.heads / job.kv_heads);
}

struct DecodeSplit {
  std::int64_t batch, kv_head, first, last;  // keys [first, last)
  // The rows of the head that are done, with scores in f32; null: all of them, as norms want it.
  const std::uint8_t* only;
};
// `partials` has decode_row_floats for each row of the head.
void attend_split(const Isa& isa, const AttentionMethod& method, const AttentionJob& job,
                  const DecodeSplit& split, float* partials);
// Adds a later piece to a row's partial.
void merge_split(float* to, const float* from, std::int64_t width);

}  // namespace octavo::cpu
