// The attention inner loop: query blocks of one head against the packed tiles of its keys and
// values (FlashAttention-style tiles, online softmax).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "octavo/backend/attention_sink.h"
#include "octavo/backend/cpu/attention/attention_pack.h"
#include "octavo/backend/cpu/attention/row_store.h"

namespace octavo::cpu {

// Query blocks per pass over the tiles: a tile is read from L2 or L3 once for this many query
// blocks.
inline constexpr int kQueryBlocks = 4;

// Scratch memory of one thread.
struct AttentionScratch {
  std::byte* queries = nullptr;  // [query blocks][panels]
  float* units = nullptr;        // [query blocks][query block]
  bool* nonfinite = nullptr;     // [query blocks][query block]
  float* scores = nullptr;       // [tile_keys][query block]
  std::byte* weights = nullptr;  // the memory of `scores` where both are f32 or both f16
  float* sums = nullptr;         // [query blocks][padded_width][query block]
  float* rows = nullptr;         // [query block][padded_width], where sums are transposed
  float *top = nullptr, *base = nullptr, *sum = nullptr;  // [query blocks][query block]
  float* weight_squares = nullptr;                        // [query blocks][query block]
  float* largest_raw_score =
      nullptr;             // [query blocks][query block]; the largest score before a bias
  std::int64_t bytes = 0;  // in total, a multiple of 64
};
AttentionScratch attention_scratch(const AttentionMethod& method, const TileLayout& layout,
                                   std::byte* memory);

// The final sums of a row: running maximum, its integer base, softmax denominator, and weighted
// values.
struct RowSums {
  float top, base, sum;
  const float* values = nullptr;  // [width], `pitch` apart
  std::int64_t pitch = 1;
  float unit = 1.0F;                // the unit of the values, a power of two
  const float* channels = nullptr;  // scales of channels, or null
  float weight_squares = std::numeric_limits<float>::infinity();  // of stored weights, if known
};

// The attention epilogue: from the sums of a row to its output, log-sum-exp and what else the job
// asks for. Called once per row.
class AttentionEpilogue {
 public:
  AttentionEpilogue(const Isa& isa, const AttentionJob& job, float weight_factor);
  void operator()(std::int64_t batch, std::int64_t head, std::int64_t row,
                  const RowSums& sums) const;
  // The softmax denominator, with the sink of the head where there is one.
  [[nodiscard]] float sum_with_sink(std::int64_t batch, std::int64_t head, std::int64_t row,
                                    const RowSums& sums) const;

 private:
  [[nodiscard]] BesideSink beside(std::int64_t batch, std::int64_t head, std::int64_t row,
                                  const RowSums& sums) const;
  void log_sum_exp(std::int64_t batch, std::int64_t head, std::int64_t row, double log2_sum,
                   bool shifts) const;

  const Isa& isa_;
  const AttentionJob& job_;
  RowStore store_;
  float weight_factor_;
};

struct BlockJob {
  const Isa& isa;
  const AttentionMethod& method;
  const AttentionJob& job;
  const TileLayout& layout;
  const AttentionEpilogue& epilogue;
  const std::byte* tiles;   // packed tiles of the KV head
  float value_unit;         // unit of the sums of weighted values
  double random_walk;       // standard deviation of score errors (attention_error_bound.h)
  std::uint8_t* uncertain;  // [queries] of the head: set where a row exceeds the error bound and is
                            // to be recomputed; the epilogue skips it then; null: no check
};
// Rows of one head, in any order, at most kQueryBlocks query blocks: the result of a row does not
// depend on its neighbours.
struct BlockRows {
  std::int64_t batch = 0, head = 0, count = 0;
  std::int64_t row[kQueryBlocks * kMaxQueryBlock];
};
void attend_block(const BlockJob& block, const BlockRows& rows, const AttentionScratch& scratch);

}  // namespace octavo::cpu
