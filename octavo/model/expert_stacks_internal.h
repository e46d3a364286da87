// Expert stacks of a checkpoint in the order in which layers multiply them: [experts, out, in], of
// gate and up the rows of gate first.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/model/weight_files_internal.h"
#include "octavo/nn/linear/linear_pass.h"

namespace octavo {

struct StackShape {
  std::int64_t experts = 0, out = 0, in = 0;
  bool in_out = false;       // stored as [experts, in, out]
  bool interleaved = false;  // rows of gate and up alternate
};

// The shape that the tensor has in the files.
[[nodiscard]] Shape stored_shape(const StackShape& shape);

// Throws Error(invalid_argument) where the stored shape is another.
[[nodiscard]] LinearWeight load_stack(const WeightFiles& files, const std::string& name,
                                      const StackShape& shape);
// [experts, out] as f32; of alternating gate and up those of gate first.
[[nodiscard]] Tensor load_stack_bias(const WeightFiles& files, const std::string& name,
                                     const StackShape& shape);

// One matrix for each expert: values of one type as a stack, else empty.
[[nodiscard]] Tensor stack_of(const std::vector<const Tensor*>& matrices);
// Biases of experts, [experts, out] of f32; those that have none get zeros. Empty where none has.
[[nodiscard]] Tensor stack_of_biases(const std::vector<FrozenLinear>& each);

}  // namespace octavo
