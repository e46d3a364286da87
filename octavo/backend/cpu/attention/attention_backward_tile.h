// The attention backward pass of one query block and one tile of keys. Scores are transposed,
// [keys][queries], so that dS is the packed panel that dQ needs; dK and dV need it transposed once
// more.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_backward_pack.h"

namespace octavo::cpu {

// Scratch memory of one thread: a packed tile of keys and its products with a query block.
struct BackwardScratch {
  float *k_transposed, *k_rows, *v_transposed, *scores, *d_p, *p_transposed, *d_s_transposed, *d_k,
      *d_v;
  float* added = nullptr;  // the bias, -inf where it masks a key; null without one
  std::int64_t floats = 0;

  BackwardScratch(const BackwardSizes& sizes, bool has_bias, float* memory);
};

// For every row of a query block, over the keys of some tiles: the running maximum of scores, and
// the sums of 2^(score - maximum) and of that times dP.
struct BackwardSums {
  explicit BackwardSums(float* memory)
      : top(memory), sum(top + kBackwardSide), delta(sum + kBackwardSide) {}
  static constexpr std::int64_t kFloats = 3 * kBackwardSide;

  void clear() const;
  void add(const BackwardSums& other) const;
  float *top, *sum, *delta;
};

class BackwardTile {
 public:
  BackwardTile(const AttentionMethod& method, const AttentionJob& forward,
               const BackwardSizes& sizes)
      : method_(method), forward_(forward), sizes_(sizes) {}

  // Query rows from `first` on of a head, and the tile of keys from `key` on.
  struct Place {
    std::int64_t batch = 0, head = 0, first = 0, key = 0;
  };
  // The first pass over keys: the softmax denominator, and delta = sum_j P dP. Both passes compute
  // a score by the same instructions, so that no weight exceeds one, however large scores are.
  void sum_up(const BackwardBlock& rows, const Place& at, const BackwardScratch& s,
              const BackwardSums& to) const;
  // The second pass: accumulates dK and dV of the tile, and d_q.
  void add_gradients(const BackwardBlock& rows, const Place& at, const BackwardScratch& s,
                     float* d_q) const;

 private:
  void product(const float* a, std::int64_t rows, const float* b, std::int64_t depth, float* into,
               bool apart) const;
  void take_bias(const BackwardBlock& rows, const Place& at, float* added) const;
  void score(const BackwardBlock& rows, const Place& at, const BackwardScratch& s) const;
  void weigh(const BackwardBlock& rows, std::int64_t key, const BackwardScratch& s) const;
  [[nodiscard]] bool sees(const BackwardBlock& rows, std::int64_t q, std::int64_t key,
                          std::int64_t j, const BackwardScratch& s) const;
  void clear_unseen(const BackwardBlock& rows, std::int64_t key, const BackwardScratch& s) const;
  void transpose(const float* from, float* to) const;
  void transpose_square(const float* from, float* to) const;
  void add_nonfinite(const BackwardBlock& rows, const BackwardScratch& s) const;

  const AttentionMethod& method_;
  const AttentionJob& forward_;
  const BackwardSizes& sizes_;
};

}  // namespace octavo::cpu
