// The head: logits of all tokens a block of the vocabulary and a few rows at a time, of all models
// at once, so that no [tokens, vocabulary] ever exists.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octavo/model/eval/layer_walk_internal.h"
#include "octavo/model/eval/token_sums_internal.h"

namespace octavo::eval {

// Rows of the head and of hidden states that are multiplied at a time. They are no options: see
// kGroupTokens. A multiple of kLogitBlock.
inline constexpr std::int64_t kHeadBlock = 4096, kHeadRows = 1024;

// Sums of every row of the windows, [model][row]; rows without a target have them, too. The hidden
// states become normed ones.
[[nodiscard]] std::vector<std::vector<TokenSums>> head_pass(const LayerWalk& walk,
                                                            bool against_first, int threads);

[[nodiscard]] std::int64_t head_nbytes(std::span<const EvalModel* const> models);  // in memory
[[nodiscard]] std::int64_t head_weight_nbytes(const EvalModel& model);  // of all of it, as progress

}  // namespace octavo::eval
