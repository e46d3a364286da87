// All experts of a layer in one tensor: how they lie in it, and which matrices they are when it is
// taken apart.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Found from the shapes of gate_up_proj and down_proj together, which only one orientation fits.
struct ExpertStack {
  bool known = false;
  bool in_out = false;       // [experts, in, out]; else [experts, out, in]
  bool interleaved = false;  // rows of gate and up take turns; else one half each
  bool gated = false;        // gate and up together
};
[[nodiscard]] OCTAVO_API ExpertStack expert_stack(const CheckpointReader& checkpoint,
                                                  const StoredTensor& tensor);
// The same where a file's shapes are not those of the values: `shape_of` has them by name, and
// nothing for a name that is not there.
using ShapeOf = std::function<std::optional<Shape>(const std::string& name)>;
[[nodiscard]] OCTAVO_API ExpertStack expert_stack(std::string_view name, const ShapeOf& shape_of);

// One matrix of a stack that is known, under the name that loaders have for it.
struct ExpertMatrix {
  std::int64_t expert = 0;
  std::int64_t first = 0;  // its first row among the expert's: 0, or where `up` begins
  std::string module;      // "...experts.3.up_proj"
  Shape shape;             // [out, in]
};
// How many there are: the experts, twice where gate and up are together. 0 for a shape that cannot
// be cut so.
[[nodiscard]] OCTAVO_API std::int64_t matrix_count(const ExpertStack& stack, const Shape& shape);
// They are numbered expert by expert, gate before up.
[[nodiscard]] OCTAVO_API ExpertMatrix expert_matrix(const ExpertStack& stack, std::string_view name,
                                                    const Shape& shape, std::int64_t index);

}  // namespace octavo
