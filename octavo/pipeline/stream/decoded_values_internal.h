// Decoded weights: those that the type they are to have cannot hold, and where they go.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/pipeline/plan/plan.h"
#include "octavo/safetensors/file_writer.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Rows [first_row, ...) of a weight as f32, f16 or bf16: Inf among them is a product that is too
// large for the type (or a code that is Inf). Throws Error(invalid_argument) with weight, row and
// column, or makes it the type's largest value.
void settle_overflow(const Tensor& values, std::string_view weight, std::int64_t first_row,
                     bool clamp);

// Writes such rows to their place in `tensor`: the weight itself, or the stack of experts that it
// is a part of.
void write_decoded(const Tensor& values, const SourcePart& part, std::int64_t first_row,
                   const safetensors::TensorEntry& tensor, safetensors::FileWriter& writer);

}  // namespace octavo
