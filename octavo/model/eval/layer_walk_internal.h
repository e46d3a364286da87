// The walk: hidden states of all windows through layer after layer of one or several models, with
// the weights of one layer in memory at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "octavo/model/eval/eval_model_internal.h"
#include "octavo/model/eval/eval_progress_internal.h"
#include "octavo/model/eval/hidden_states_internal.h"
#include "octavo/model/eval/token_windows_internal.h"

namespace octavo::eval {

// What is in memory during a walk. docs/guide/models.md says how it adds up.
struct MemoryPlan {
  bool spills = false;       // hidden states are in a file
  bool reads_ahead = false;  // the next layer is read while one computes
  std::uint64_t bytes = 0;   // of all, without what is read ahead
};

// Throws Error(invalid_argument) where one layer and its work do not fit into `most` bytes.
// `besides`: bytes that the caller needs throughout, and what they are of, for the message.
[[nodiscard]] MemoryPlan plan_memory(const std::string& op,
                                     std::span<const EvalModel* const> models,
                                     const TokenWindows& windows, std::uint64_t most,
                                     std::uint64_t besides, const std::string& besides_what = {});

struct WalkedModel {
  const EvalModel* model = nullptr;
  HiddenStates* hidden = nullptr;
};

struct LayerWalk {
  std::span<const WalkedModel> models{};
  const TokenWindows* windows = nullptr;
  std::int64_t first_layer = 0;
  bool reads_ahead = false;
  const LayerObserver* observer = nullptr;
  EvalProgress* progress = nullptr;
  // Hidden states [rows, hidden] of a group, after a layer of a model; -1: the embedding.
  std::function<void(std::size_t model, std::int64_t layer, const WindowGroup&, const View&)>
      after_group{};
  std::function<void(std::int64_t layer)> after_layer{};  // of all models
};

// Embeds all tokens of all models; layer -1 of the walk.
void walk_embedding(const LayerWalk& walk);
void walk_layers(const LayerWalk& walk);

}  // namespace octavo::eval
