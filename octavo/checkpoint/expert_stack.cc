#include "octavo/checkpoint/expert_stack.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"

namespace octavo {
namespace {

constexpr std::string_view kUp = "gate_up_proj", kDown = "down_proj";

std::int64_t parts_of(const ExpertStack& stack) { return stack.gated ? 2 : 1; }

}  // namespace

ExpertStack expert_stack(std::string_view name, const ShapeOf& shape_of) {
  const std::string_view module = module_of(name), suffix = name.substr(module.size());
  ExpertStack stack{.gated = module.ends_with(kUp)};
  if (!stack.gated && !module.ends_with(kDown)) return stack;
  const std::string_view prefix =
      module.substr(0, module.size() - (stack.gated ? kUp : kDown).size());
  const std::optional<Shape> up = shape_of(text(prefix, kUp, suffix)),
                             down = shape_of(text(prefix, kDown, suffix));
  if (!up || !down) return stack;
  const Shape &a = *up, &b = *down;
  if (a.rank() != 3 || b.rank() != 3 || a[0] != b[0]) return stack;
  // [E, in, 2 mid] and [E, mid, in], or [E, 2 mid, in] and [E, in, mid].
  const auto is_twice = [](std::int64_t x, std::int64_t y) { return x % 2 == 0 && x / 2 == y; };
  stack.in_out = a[1] == b[2] && is_twice(a[2], b[1]);
  stack.known = stack.in_out || (a[2] == b[1] && is_twice(a[1], b[2]));
  // Only gpt-oss interleaves gate and up, and only gpt-oss has biases here.
  stack.interleaved = shape_of(text(prefix, kUp, "_bias")).has_value();
  return stack;
}

ExpertStack expert_stack(const CheckpointReader& checkpoint, const StoredTensor& tensor) {
  return expert_stack(tensor.name(), [&](const std::string& name) -> std::optional<Shape> {
    const StoredTensor* const found = checkpoint.find(name);
    if (found == nullptr || found->entry->shape.size() > kMaxRank) return std::nullopt;
    std::vector<std::int64_t> sizes(found->entry->shape.begin(), found->entry->shape.end());
    return Shape(std::span<const std::int64_t>(sizes));
  });
}

std::int64_t matrix_count(const ExpertStack& stack, const Shape& shape) {
  if (shape.rank() != 3 || shape[stack.in_out ? 2 : 1] % parts_of(stack) != 0) return 0;
  return shape[0] * parts_of(stack);
}

ExpertMatrix expert_matrix(const ExpertStack& stack, std::string_view name, const Shape& shape,
                           std::int64_t index) {
  const std::int64_t parts = parts_of(stack), expert = index / parts, part = index % parts;
  const std::int64_t rows = shape[stack.in_out ? 2 : 1] / parts, in = shape[stack.in_out ? 1 : 2];
  const std::string_view last = !stack.gated ? kDown : part == 0 ? "gate_proj" : "up_proj";
  return {.expert = expert,
          .first = part * rows,
          .module = text(holder_of(name), ".", expert, ".", last),
          .shape = {rows, in}};
}

}  // namespace octavo
