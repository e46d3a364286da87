// A block of query rows of one head, against the packed tiles of its keys and values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention_pack.h"
#include "octavo/backend/cpu/attention/row_store.h"

namespace octavo::cpu {

// A tile comes from the second or third cache and is used by so many strips.
inline constexpr int kQueryBlocks = 4;

// Memory of one thread.
struct AttentionScratch {
  std::byte* queries = nullptr;                           // [strips][panels]
  float* units = nullptr;                                 // [strips][strip]
  bool* nonfinite = nullptr;                              // [strips][strip]
  float* scores = nullptr;                                // [tile_keys][strip]
  std::byte* weights = nullptr;                           // the same memory where lanes are f32
  float* sums = nullptr;                                  // [strips][padded_width][strip]
  float *top = nullptr, *base = nullptr, *sum = nullptr;  // [strips][strip]
  float* weight_squares = nullptr;                        // [strips][strip]
  float* largest_raw_score = nullptr;  // [strips][strip]; the largest score before a bias
  std::int64_t bytes = 0;              // of all of it, a multiple of 64
};
AttentionScratch attention_scratch(const AttentionMethod& method, const TileLayout& layout,
                                   std::byte* memory);

// Sums that a row ends with.
struct RowSums {
  float top, base, sum;
  const float* values;  // [width], `pitch` apart
  std::int64_t pitch;
  float unit = 1.0F;                // of the values, a power of two
  const float* channels = nullptr;  // scales of them, if there are any
};

// What sums of a row become: its output, and what else is asked for. Rows are done once each.
class AttentionEpilogue {
 public:
  AttentionEpilogue(const Isa& isa, const AttentionJob& job, float weight_factor);
  void operator()(std::int64_t batch, std::int64_t head, std::int64_t row,
                  const RowSums& sums) const;

 private:
  void log_sum_exp(std::int64_t batch, std::int64_t head, std::int64_t row, const RowSums& sums,
                   bool poisoned, bool empty) const;

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
  const std::byte* tiles;   // of the head that keys and values are of
  float value_unit;         // that sums of its values are kept in
  double random_walk;       // what its scores are off by (attention_error_bound.h)
  std::uint8_t* uncertain;  // [queries] of the head: set where a row is to be done again, and it is
                            // not finished then; null: all are
};
// Rows of one head, in any order, at most kQueryBlocks strips: what a row becomes does not depend
// on its neighbours.
struct BlockRows {
  std::int64_t batch = 0, head = 0, count = 0;
  std::int64_t row[kQueryBlocks * kMaxQueryBlock];
};
void attend_block(const BlockJob& block, const BlockRows& rows, const AttentionScratch& scratch);

}  // namespace octavo::cpu
