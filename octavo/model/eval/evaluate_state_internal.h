// The state of an evaluation after a layer, in a folder: what a later process needs to go on.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "octavo/base/json/json.h"
#include "octavo/model/eval/evaluate_internal.h"
#include "octavo/model/eval/hidden_states_internal.h"

namespace octavo::eval {

// Hidden states are a file each, state.json names them and is replaced as a whole: whenever the
// process ends, the folder has the state after some layer.
class EvaluateState {
 public:
  // `folder` is made where it does not exist; empty: there is no state, and members do nothing.
  EvaluateState(std::string folder, std::span<const EvalModel* const> models,
                const TokenWindows& windows, bool against_first);

  // The layer to begin with; -1 where nothing is stored. Throws Error(invalid_argument) with the
  // reason where the state is that of other models, texts or options, or is damaged.
  [[nodiscard]] std::int64_t restore(std::span<HiddenStates> hidden, Differences& differences);
  void store(std::int64_t next_layer, std::span<const HiddenStates> hidden,
             const Differences& differences);
  void remove();  // all is done
  [[nodiscard]] bool exists() const { return !folder_.empty(); }

 private:
  [[nodiscard]] std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void remove_others(const Json& state) const;

  std::string folder_;
  Json identity_;
};

}  // namespace octavo::eval
