// What a block of query rows and a tile of keys have to do with each other in the backward pass.
// Scores lie turned, [keys][queries], so that dS is the panel that dQ wants; dK and dV want it
// turned once more.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_backward_pack.h"

namespace octavo::cpu {

// What one thread works in: a tile of keys, and what its keys have to do with a block of rows.
struct BackwardScratch {
  float *k_transposed, *k_rows, *v_transposed, *scores, *d_p, *p_transposed, *d_s_transposed, *d_k,
      *d_v;
  float* added = nullptr;  // the bias, -inf where it hides a key; where there is one
  std::int64_t floats = 0;

  BackwardScratch(const BackwardSizes& sizes, bool has_bias, float* memory);
};

// Of every row of a block, over the keys of some tiles: the largest score, and the sums of 2^(score
// - largest) and of that times dP.
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

  // Of rows `first`, ... of a head and the tile of keys from `key` on.
  struct Place {
    std::int64_t batch = 0, head = 0, first = 0, key = 0;
  };
  // The first pass over keys: what weights are divided by, and sum_j P dP. Both passes compute a
  // score by the same instructions, so that no weight is more than one, however large scores are.
  void sum_up(const BackwardBlock& rows, const Place& at, const BackwardScratch& s,
              const BackwardSums& to) const;
  // The second one: adds to dK and dV of the tile, and to d_q.
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
