// The state of a walk (evaluation, GPTQ) after a layer, in a folder: what a later process needs to
// go on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "octavo/base/json/json.h"
#include "octavo/model/eval/evaluate_internal.h"
#include "octavo/model/eval/hidden_states_internal.h"

namespace octavo::eval {

inline constexpr std::string_view kWalkState = "state.json";

// Hidden states are a file each, state.json names them and is replaced as a whole: whenever the
// process ends, the folder has the state after some layer.
class WalkState {
 public:
  // `folder` is made where it does not exist; empty: there is no state, and members do nothing.
  // `more`: what else must be the same for the state to be of use, by words for the message.
  WalkState(std::string op, std::string folder, std::span<const EvalModel* const> models,
            const TokenWindows& windows, const Json& more);

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

  std::string op_, folder_;
  Json identity_;
};

}  // namespace octavo::eval
