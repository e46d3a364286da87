// generate(): text from a model, a token at a time, greedy or sampled.
//   GenerateResult text = generate(model, ids, {.max_tokens = 64});
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/model/decoder.h"

namespace octavo {

// How the next token is chosen from logits.
struct Sampling {
  double temperature = 0.0;  // logits are divided by it; 0: the largest is taken (greedy)
  std::int64_t top_k = 0;    // draw from the k largest logits; 0: from all
  double top_p = 1.0;        // of the fewest most likely that have this probability together
  std::uint64_t seed = 0;
};

struct GenerateOptions {
  std::int64_t max_tokens = 128;
  Sampling sampling{};
  bool stop_at_eos = true;  // the tokens that the model's config names
  KvCacheOptions cache{.values = DType::f32};
  // Called with each token as it comes; false ends the text.
  std::function<bool(std::int32_t)> on_token{};
  LinearRun run{};
};

struct GenerateResult {
  std::vector<std::int32_t> ids{};  // without the prompt, and without the token that ended it
  bool at_eos = false;              // else max_tokens, the model's positions, or on_token
  double prompt_seconds = 0.0, seconds = 0.0;  // for the prompt, and for the tokens after it
};

// Throws Error(invalid_argument) for an empty prompt, ids beyond the vocabulary, and a prompt that
// is longer than the model's positions.
OCTAVO_API GenerateResult generate(const Decoder& model, std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options = {});

// One token. `step` counts tokens of a text: a draw depends on the seed and on it alone. Of equal
// logits the first is taken. Throws Error(invalid_argument) where all are NaN or the options make
// no sense.
[[nodiscard]] OCTAVO_API std::int32_t sample(std::span<const float> logits,
                                             const Sampling& sampling, std::uint64_t step = 0);

}  // namespace octavo
