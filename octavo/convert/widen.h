// widened(): a tensor of any element type as f32.
#pragma once

#include "octavo/tensor/tensor.h"

namespace octavo {

// f32 is returned as it is; bf16, f16 and unpacked codes convert exactly; f64 is rounded to nearest
// even. Dense, on the CPU, one thread.
[[nodiscard]] Tensor widened(const Tensor& numbers);

}  // namespace octavo
