// RotaryEmbedding: rotary position embedding (RoPE) of a model: the frequencies of its pairs, and
// how they change with the length of the context. Scalings that are the same for all lengths
// (linear, Llama 3, YaRN) are in the frequencies already.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct OCTAVO_API RotaryEmbedding {
  std::vector<float> inverse_frequencies{};  // one per pair; empty: positions are not rotated
  double attention_factor = 1.0;             // of cosines and sines (YaRN, LongRoPE)

  // LongRoPE: other frequencies where the context is longer than this.
  std::vector<float> long_inverse_frequencies{};
  std::int64_t long_after = 0;

  // Dynamic NTK: the base grows with a context that is longer than max_positions.
  struct Dynamic {
    double base = 1e4, factor = 1.0;
    std::int64_t max_positions = 0;
  };
  std::optional<Dynamic> dynamic{};

  [[nodiscard]] bool rotates() const { return !inverse_frequencies.empty(); }
  // For a context of this number of tokens.
  [[nodiscard]] std::vector<float> frequencies_for(std::int64_t length) const;
  // In place: [batch, tokens, heads, head_size] of tokens from position `first` on, of a context
  // of this number of tokens: of a prompt that comes in parts the whole one, not that up to here.
  void forward(const View& x, std::int64_t first, std::int64_t context,
               const LinearRun& run = {}) const;
};

// base^(-2 i / rotated), in f32 step by step as transformers computes it: angles of far positions
// show the last bits of frequencies.
[[nodiscard]] OCTAVO_API std::vector<float> rope_frequencies(double base, std::int64_t rotated);

}  // namespace octavo
