// Experts that were taken apart, as one tensor again.
#include <algorithm>
#include <map>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan_internal.h"
#include "octavo/pipeline/provenance_internal.h"

namespace octavo {
namespace {

struct Stack {
  std::string name{};
  std::vector<std::uint64_t> shape{};
  bool in_out = false;
  [[nodiscard]] std::int64_t size(std::size_t i) const {
    return static_cast<std::int64_t>(shape[i]);
  }
};

// Nothing for what is no stack of experts.
std::optional<Stack> parse_stack(const Json& words) {
  Stack stack{.name = std::string(words["name"].string_or("")),
              .in_out = words["in_out"].boolean_or(false)};
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  for (const Json& size : words["shape"].elements()) {
    const std::int64_t value = size.integer_or(0);
    if (value < 1 || value > kMost) return std::nullopt;
    stack.shape.push_back(static_cast<std::uint64_t>(value));
  }
  const std::string_view module = module_of(stack.name);
  const bool known = module.ends_with(".gate_up_proj") || module.ends_with(".down_proj");
  if (stack.shape.size() != 3 || !known) return std::nullopt;
  return stack;
}

// Actions by the names of their weights.
using ByName = std::map<std::string_view, std::size_t>;

// The parts of a stack in the order of their rows; empty where one is missing or does not fit.
std::vector<std::size_t> parts_of(const Stack& stack, const QuantizePlan& plan,
                                  const ByName& by_name) {
  const std::string_view module = module_of(stack.name);
  const std::string_view prefix = module.substr(0, module.rfind('.') + 1);
  const bool gated = module.ends_with("gate_up_proj");
  const std::int64_t parts = gated ? 2 : 1;
  const std::int64_t out = stack.size(stack.in_out ? 2 : 1), in = stack.size(stack.in_out ? 1 : 2);
  std::vector<std::size_t> found;
  if (out % parts != 0) return found;
  for (std::int64_t expert = 0; expert < stack.size(0); ++expert)
    for (std::int64_t part = 0; part < parts; ++part) {
      const char* const last = !gated ? "down_proj" : part == 0 ? "gate_proj" : "up_proj";
      const auto at = by_name.find(text(prefix, expert, ".", last, ".weight"));
      if (at == by_name.end() || plan.actions[at->second].weight.shape != Shape{out / parts, in})
        return {};
      found.push_back(at->second);
    }
  return found;
}

}  // namespace

void restack(const CheckpointReader& source, QuantizePlan& plan, std::vector<std::string>& notes) {
  ByName by_name;
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    if (plan.actions[i].found) by_name[plan.actions[i].weight.name] = i;
  for (const Json& words : source.config()["octavo"]["stacks"].elements()) {
    const std::optional<Stack> stack = parse_stack(words);
    const std::vector<std::size_t> parts =
        stack ? parts_of(*stack, plan, by_name) : std::vector<std::size_t>();
    if (parts.empty() || source.find(stack->name) != nullptr) {
      notes.push_back(text(shown_tensor(words["name"].string_or("")),
                           " is left apart: not all experts of its stack are there, or they have "
                           "other shapes"));
      continue;
    }
    const std::size_t leader = *std::min_element(parts.begin(), parts.end());
    const auto each = static_cast<std::int64_t>(parts.size()) / stack->size(0);
    SpelledTensor whole = plan.actions[leader].outputs.front();
    whole.plan.name = stack->name;
    whole.plan.shape = stack->shape;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      TensorAction& action = plan.actions[parts[i]];
      const auto at = static_cast<std::int64_t>(i);
      action.part = {.matrix = at / each,
                     .first = at % each * action.weight.shape[0],
                     .transposed = stack->in_out};
      action.outputs.clear();
      if (parts[i] == leader)
        action.outputs = {whole};
      else
        action.joins = leader;
      by_name.erase(action.weight.name);  // of one stack alone, whatever the words say
    }
  }
}

}  // namespace octavo
