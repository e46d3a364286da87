// The attention backward pass of one query block and one tile of keys. Scores are transposed,
// [keys][queries], so that dS is the packed panel that dQ needs; dK and dV need it transposed once
// more.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_pack.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"

namespace octavo::cpu {

// Packing for the attention backward pass: rows of Q, K, V and dO as packed panels.

inline constexpr std::int64_t kBackwardSide = 48;  // rows of a query block, keys of a tile

struct BackwardSizes {
  BackwardSizes(const Microkernel& kernel, std::int64_t depth_, std::int64_t width_)
      : rows(kernel.rows),
        cols(kernel.cols),
        depth(depth_),
        width(width_),
        padded_depth(round_up(depth_, kernel.rows)),
        padded_width(round_up(width_, kernel.rows)) {}

  // Floats of a query block: Q and dO twice, and six numbers for each row; a multiple of 16.
  [[nodiscard]] std::int64_t block_floats() const {
    return 2 * kBackwardSide * (padded_depth + padded_width) + round_up(6 * kBackwardSide, 16);
  }
  std::int64_t rows, cols;  // MR and NR of the microkernel
  std::int64_t depth, width, padded_depth, padded_width;
};

// The parts of a packed query block. Transposed: [panel of queries][channel][query]; rows: [panel
// of channels][query][channel].
struct BackwardBlock {
  BackwardBlock(const BackwardSizes& sizes, float* memory)
      : q_transposed(memory),
        q_rows(q_transposed + kBackwardSide * sizes.padded_depth),
        d_transposed(q_rows + kBackwardSide * sizes.padded_depth),
        d_rows(d_transposed + kBackwardSide * sizes.padded_width),
        from(d_rows + kBackwardSide * sizes.padded_width),
        times(from + kBackwardSide),
        delta(times + kBackwardSide),
        begin(reinterpret_cast<std::int32_t*>(delta + kBackwardSide)),
        end(begin + kBackwardSide),
        known_(end + kBackwardSide),
        width_(sizes.width) {}

  float *q_transposed, *q_rows, *d_transposed, *d_rows;
  float *from, *times;        // P = 2^(score - from) times, scores being in units of log2
  float* delta;               // delta of FlashAttention: sum_j P dP, which is sum_e dO O
  std::int32_t *begin, *end;  // the keys that a row sees
  // Does every row see all of these keys, and is every row finite?
  [[nodiscard]] bool all_see(std::int64_t first, std::int64_t last) const {
    bool all = true;
    for (std::int64_t r = 0; r < kBackwardSide; ++r)
      all &= (begin[r] <= first) & (end[r] >= last) & (from[r] == from[r]);
    return all;
  }
  // Are from, times and delta known? Otherwise a pass over keys computes them.
  [[nodiscard]] bool is_known() const { return *known_ != 0; }
  void set_known(bool known) const { *known_ = known ? 1 : 0; }
  [[nodiscard]] bool d_out_is_nonfinite() const {
    return !is_finite_row(d_transposed, kBackwardSide * width_);
  }

 private:
  std::int32_t* known_;
  std::int64_t width_;
};

class BackwardPack {
 public:
  explicit BackwardPack(const BackwardSizes& sizes) : sizes_(sizes) {}

  // Packs rows [first, first + real), and zeros up to 48, into panels of `side` rows,
  // [channel][row]; and, where `rows` is given, into panels of channels, [row][channel], with
  // non-finite values as zero: those are multiplied by the zeros of rows that do not see them.
  void both(const AttentionRows& from, std::int64_t first, std::int64_t real, std::int64_t cols,
            std::int64_t side, float* transposed, float* rows) const {
    alignas(64) float row[kMaxHeadSize];
    for (std::int64_t r = 0; r < kBackwardSide; ++r) {
      if (r < real) from.row(first + r, row);
      if (r >= real) std::fill_n(row, cols, 0.0F);
      float* to = transposed + r / side * side * cols + r % side;
      for (std::int64_t d = 0; d < cols; ++d) to[d * side] = row[d];
      if (rows == nullptr) continue;
      const std::int64_t padded = round_up(cols, sizes_.rows);
      for (std::int64_t d = 0; d < cols; ++d) row[d] = std::isfinite(row[d]) ? row[d] : 0.0F;
      std::fill(row + cols, row + padded, 0.0F);
      for (std::int64_t d = 0; d < padded; ++d)
        rows[d / sizes_.rows * sizes_.rows * kBackwardSide + r * sizes_.rows + d % sizes_.rows] =
            row[d];
    }
  }

 private:
  const BackwardSizes& sizes_;
};

// Scratch memory of one thread: a packed tile of keys and its products with a query block.
struct BackwardScratch {
  float *k_transposed, *k_rows, *v_transposed, *scores, *d_p, *p_transposed, *d_s_transposed, *d_k,
      *d_v;
  float* added = nullptr;   // the bias, -inf where it masks a key; null without one
  float* slopes = nullptr;  // of the soft cap; null without one
  float* kept = nullptr;    // 0, or dropout's factor; null without dropout
  std::int64_t floats = 0;

  BackwardScratch(const BackwardSizes& sizes, const AttentionJob& forward, float* memory);
};

// For every row of a query block, over the keys of some tiles: the running maximum of scores, and
// the sums of 2^(score - maximum) and of that times dP.
struct BackwardSums {
  explicit BackwardSums(float* memory)
      : top(memory), sum(top + kBackwardSide), delta(sum + kBackwardSide) {}
  static constexpr std::int64_t kFloats = 3 * kBackwardSide;

  void clear() const;
  void add(const BackwardSums& other) const;
  void add_sink(std::int64_t row, float sink) const;  // to a row that has seen a key
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
  void soft_cap(const BackwardScratch& s) const;
  void drop(const Place& at, const BackwardScratch& s) const;
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
