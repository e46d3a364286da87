// Numbers of any type as f32.
#pragma once

#include "octavo/tensor/tensor.h"

namespace octavo {

// f32 itself where they are that already; bf16, f16 and codes that are not packed exactly; f64
// rounded to nearest even. Dense, on the CPU, one thread.
[[nodiscard]] Tensor widened(const Tensor& numbers);

}  // namespace octavo
