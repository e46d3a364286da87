// Splits an expert stack into per-expert matrices.
#include "octavo/pipeline/plan/plan_internal.h"

namespace octavo {

std::string split_experts(const ExpertStack& stack, const TensorAction& like, Dialect target,
                          std::vector<TensorAction>& actions) {
  if (stack.interleaved) return "gate and up are interleaved in it, and so are their biases";
  const Shape& shape = like.weight.shape;
  const std::int64_t count = matrix_count(stack, shape);
  if (count == 0) return "its experts cannot be cut in halves";
  for (std::int64_t i = 0; i < count; ++i) {
    ExpertMatrix one = expert_matrix(stack, like.weight.name, shape, i);
    TensorAction action = like;
    action.part = {.matrix = one.expert, .first = one.first, .transposed = stack.in_out};
    action.weight.name = one.module + ".weight";
    action.weight.module = std::move(one.module);
    action.weight.shape = one.shape;
    action.why = "an expert of a stack";
    if (std::string why = why_not(target, action.weight); !why.empty()) return why;
    actions.push_back(std::move(action));
  }
  return "";
}

}  // namespace octavo
