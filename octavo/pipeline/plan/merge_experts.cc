// Merges per-expert matrices into the expert stack they came from.
#include <algorithm>
#include <map>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/plan/provenance_internal.h"

namespace octavo {
namespace {

struct Stack {
  std::string name{};
  Shape shape{};
  ExpertStack lies{};
};

std::optional<Shape> parse_shape(const Json& words) {
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  const auto& sizes = words.elements();
  if (sizes.size() != 3) return std::nullopt;
  Shape shape{0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    const std::int64_t size = sizes[static_cast<std::size_t>(i)].integer_or(0);
    if (size < 1 || size > kMax) return std::nullopt;
    shape[i] = size;
  }
  return shape;
}

// nullopt for what is no expert stack, and for a recorded orientation that no shape confirms: the
// shapes of its matrices do unless the stack is square, and then those of the layer's other stack.
std::optional<Stack> parse_stack(const Json& words, const std::map<std::string, Shape>& shapes) {
  const std::string name(words["name"].string_or(""));
  const std::string_view module = module_of(name);
  const bool gated = module.ends_with(".gate_up_proj");
  const std::optional<Shape> shape = parse_shape(words["shape"]);
  if (!shape || (!gated && !module.ends_with(".down_proj"))) return std::nullopt;
  Stack stack{.name = name, .shape = *shape};
  stack.lies = {.known = true, .in_out = words["in_out"].boolean_or(false), .gated = gated};
  if (stack.shape[1] != stack.shape[2]) return stack;
  const ExpertStack both = expert_stack(name, [&](const std::string& of) -> std::optional<Shape> {
    const auto found = shapes.find(of);
    return found == shapes.end() ? std::nullopt : std::optional(found->second);
  });
  if (!both.known || both.in_out != stack.lies.in_out) return std::nullopt;
  return stack;
}

// Actions by the names of their weights.
using ByName = std::map<std::string_view, std::size_t>;

// The parts of a stack in the order of their rows; empty where one is missing or does not fit.
std::vector<std::size_t> parts_of(const Stack& stack, const QuantizePlan& plan,
                                  const ByName& by_name) {
  std::vector<std::size_t> found;
  const std::int64_t count = matrix_count(stack.lies, stack.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    const ExpertMatrix one = expert_matrix(stack.lies, stack.name, stack.shape, i);
    const auto at = by_name.find(one.module + ".weight");
    if (at == by_name.end() || plan.actions[at->second].weight.shape != one.shape) return {};
    found.push_back(at->second);
  }
  return found;
}

}  // namespace

void merge_experts(const CheckpointReader& source, QuantizePlan& plan,
                   std::vector<std::string>& notes) {
  ByName by_name;
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    if (plan.actions[i].found) by_name[plan.actions[i].weight.name] = i;
  const auto& said = source.config()["octavo"]["stacks"].elements();
  std::map<std::string, Shape> shapes;
  for (const Json& words : said)
    if (const auto shape = parse_shape(words["shape"]))
      shapes.emplace(words["name"].string_or(""), *shape);
  for (const Json& words : said) {
    const std::optional<Stack> stack = parse_stack(words, shapes);
    const std::vector<std::size_t> parts =
        stack ? parts_of(*stack, plan, by_name) : std::vector<std::size_t>();
    if (parts.empty() || source.find(stack->name) != nullptr) {
      notes.push_back(text(shown_tensor(words["name"].string_or("")),
                           " is left apart: not all experts of its stack are there, or they have "
                           "other shapes, or another orientation, than config.json records"));
      continue;
    }
    const std::size_t leader = *std::min_element(parts.begin(), parts.end());
    DialectTensor whole = plan.actions[leader].outputs.front();
    whole.plan.name = stack->name;
    const auto sizes = stack->shape.sizes();
    whole.plan.shape.assign(sizes.begin(), sizes.end());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      TensorAction& action = plan.actions[parts[i]];
      const ExpertMatrix one =
          expert_matrix(stack->lies, stack->name, stack->shape, static_cast<std::int64_t>(i));
      action.part = {.matrix = one.expert, .first = one.first, .transposed = stack->lies.in_out};
      action.outputs.clear();
      if (parts[i] == leader)
        action.outputs = {whole};
      else
        action.joins = leader;
      by_name.erase(action.weight.name);  // belongs to one stack only, whatever the provenance says
    }
  }
}

}  // namespace octavo
