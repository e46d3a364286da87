// Decisions before they are a plan: tensor by tensor first, then what servers load as one.
#pragma once

#include <string>
#include <vector>

#include "octavo/checkpoint/expert_stack.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/plan/name_patterns_internal.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// One tensor of the source.
struct Decision {
  std::size_t tensor = 0;  // of CheckpointReader::tensors()
  Role role = Role::other;
  std::string recipe{};                 // empty: it is left as it is
  bool named = false;                   // by include or recipe_for: what cannot be is an error
  SkipReason left = SkipReason::no;     // why it is left
  std::string why{};                    // in words
  std::vector<TensorAction> actions{};  // where quantized: one, or those of a stack taken apart
};

// The weights of a plan's actions, which are its model's.
[[nodiscard]] std::vector<QuantizedWeight> planned_weights(const QuantizePlan& plan);

// The experts of a stack, which is known, as actions of their own that are like `like` but for
// name, shape and place. Why the target cannot have them so, or "".
[[nodiscard]] std::string split_experts(const ExpertStack& stack, const TensorAction& like,
                                        Dialect target, std::vector<TensorAction>& actions);

// The cache of keys and values is quantized in the source, and the target has no words for it.
[[nodiscard]] bool loses_cache(const CheckpointReader& source, const QuantizedModel& model);
inline constexpr std::string_view kCacheLost =
    "the cache of keys and values is no longer said to be quantized; its scales stay";

// "tensor 'x'", for messages.
[[nodiscard]] std::string shown_tensor(std::string_view name);

// Is it in any tensor's name?
[[nodiscard]] bool finds_any(const CheckpointReader& source, const NamePattern& pattern);
// "option exclude: 'x' is found in no tensor's name".
[[nodiscard]] std::string found_nowhere(std::string_view option, const NamePattern& pattern);
// Throws Error(invalid_argument) where one of them is in none.
void check_included(const CheckpointReader& source, const NamePatterns& include);

// Is it loaded by those who make one of several tensors?
[[nodiscard]] bool is_for_servers(Dialect target);

// What servers make one matrix of is quantized alike or not at all. Members that nobody named are
// left where another one is; Error(unsupported) where a name that the user gave stands against it.
void decide_groups(const CheckpointReader& source, Dialect target,
                   std::vector<Decision>& decisions);

}  // namespace octavo
