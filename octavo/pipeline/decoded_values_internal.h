// Decoded weights that the type they are to have cannot hold.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/tensor/tensor.h"

namespace octavo {

// Rows [first_row, ...) of a weight as f32, f16 or bf16: Inf among them is a product that is too
// large for the type (or a code that is Inf). Throws Error(invalid_argument) with weight, row and
// column, or makes it the type's largest value.
void settle_overflow(const Tensor& values, std::string_view weight, std::int64_t first_row,
                     bool clamp);

}  // namespace octavo
