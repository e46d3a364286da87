// Magnitudes of the values that a KV cache keeps, updated as tokens come: with them `auto` chooses
// a rung for few queries without reading V.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "octavo/backend/attention_job.h"
#include "octavo/base/macros.h"
#include "octavo/tensor/view.h"

namespace octavo {

class OCTAVO_API KvStatistics {
 public:
  KvStatistics() = default;
  KvStatistics(std::int64_t batches, std::int64_t heads, std::int64_t size);

  // New tokens, f32 [batches, heads, tokens, size]: all of each batch, or its first `counts`.
  void add(const View& values, std::span<const std::int64_t> counts);
  // Tokens of a batch that are gone, f32 [1, heads, tokens, size]. Their largest magnitudes stay,
  // which makes `auto` no less careful. False where a sum lost its digits to those that are gone:
  // then the batch has to be counted again.
  [[nodiscard]] bool drop(const View& values, std::int64_t batch);
  // The tokens that a batch has, f32 [1, heads, tokens, size], instead of what was added.
  void count_again(const View& values, std::int64_t batch);
  void clear();

  // One for each (batch, head).
  [[nodiscard]] std::vector<AttentionStatistics> all() const;

 private:
  struct OfHead {
    std::int64_t tokens = 0;
    double row_squares = 0.0, amax = 0.0;
    std::vector<double> channels{};  // sums of squares
    std::vector<double> peaks{};     // the largest that each of them was
    void add(const float* row);
    void clear();
  };
  std::int64_t heads_ = 0;
  std::vector<OfHead> of_;
};

}  // namespace octavo
