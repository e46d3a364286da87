// Expert stacks: all experts of a layer in one tensor (experts.gate_up_proj). Their orientation,
// and the per-expert matrices when the stack is split.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Determined from the shapes of gate_up_proj and down_proj together, which fit only one
// orientation.
struct ExpertStack {
  bool known = false;
  bool in_out = false;       // [experts, in, out]; else [experts, out, in]
  bool interleaved = false;  // rows of gate and up alternate; else one half each
  bool gated = false;        // gate and up together
};
[[nodiscard]] ExpertStack expert_stack(const CheckpointReader& checkpoint,
                                       const StoredTensor& tensor);
// The same where stored shapes differ from value shapes (packed codes): `shape_of` maps a name to
// the value shape, nullopt for a missing tensor.
using ShapeOf = std::function<std::optional<Shape>(const std::string& name)>;
[[nodiscard]] ExpertStack expert_stack(std::string_view name, const ShapeOf& shape_of);

// One matrix of a stack of known orientation, under the per-expert name that loaders use.
struct ExpertMatrix {
  std::int64_t expert = 0;
  std::int64_t first = 0;  // its first row within the expert: 0, or where `up` begins
  std::string module;      // "...experts.3.up_proj"
  Shape shape;             // [out, in]
};
// The number of matrices: experts, times two where gate and up are fused. 0 for a shape that cannot
// be split so.
[[nodiscard]] std::int64_t matrix_count(const ExpertStack& stack, const Shape& shape);
// Matrices are numbered by expert, gate before up.
[[nodiscard]] ExpertMatrix expert_matrix(const ExpertStack& stack, std::string_view name,
                                         const Shape& shape, std::int64_t index);

}  // namespace octavo
