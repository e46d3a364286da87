// Decisions per tensor, and per group of tensors that servers load as one, before they become a
// plan.
#pragma once

#include <string>
#include <vector>

#include "octavo/checkpoint/expert_stack.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/plan/name_patterns_internal.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// The decision for one tensor of the source.
struct Decision {
  std::size_t tensor = 0;  // index into CheckpointReader::tensors()
  Role role = Role::other;
  std::string recipe{};                 // empty: stays unquantized
  bool named = false;                   // matched by include or recipe_for: if impossible, an error
  SkipReason left = SkipReason::no;     // why it stays unquantized
  std::string why{};                    // as text
  std::vector<TensorAction> actions{};  // if quantized: one, or those of a split stack
};

// The weights of a plan's actions: those of its model.
[[nodiscard]] std::vector<QuantizedWeight> planned_weights(const QuantizePlan& plan);

// How many of an action's outputs hold its tensor; the others are static scales.
[[nodiscard]] std::size_t own_outputs(const QuantizePlan& plan, const TensorAction& action);

// Splits an expert stack of known orientation into one action per matrix, each like `like` but for
// name, shape and position. Returns why the target cannot hold them so, or "".
[[nodiscard]] std::string split_experts(const ExpertStack& stack, const TensorAction& like,
                                        Dialect target, std::vector<TensorAction>& actions);

// Sets the dtype to write into config.json where transformers could not compute with the source's.
// Returns a note on it, or "".
[[nodiscard]] std::string plan_dtype(const CheckpointReader& source, QuantizePlan& plan);

// True if the source declares KV cache quantization and the target does not support it.
[[nodiscard]] bool loses_cache(const CheckpointReader& source, const QuantizedModel& model);
inline constexpr std::string_view kCacheLost =
    "KV cache quantization is no longer declared; its scales stay";

// "tensor 'x'", for messages.
[[nodiscard]] std::string shown_tensor(std::string_view name);

// True if the pattern matches any tensor's name.
[[nodiscard]] bool finds_any(const CheckpointReader& source, const NamePattern& pattern);
// "option exclude: 'x' is found in no tensor's name".
[[nodiscard]] std::string found_nowhere(std::string_view option, const NamePattern& pattern);
// Throws Error(invalid_argument) where one of them matches no tensor.
void check_included(const CheckpointReader& source, const NamePatterns& include);

// True for dialects that servers load, which fuse tensors.
[[nodiscard]] bool is_for_servers(Dialect target);

// What servers fuse into one matrix gets one scheme, or stays unquantized together. Members that no
// option names stay unquantized where another one does; Error(unsupported) where the user's include
// or recipe_for contradicts that.
void decide_groups(const CheckpointReader& source, Dialect target,
                   std::vector<Decision>& decisions);

}  // namespace octavo
