// converted(): values of one type and any strides as dense values of another.
#pragma once

#include <string_view>

#include "octavo/nn/linear/linear_pass.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// f32, bf16 or f16 to any of these, rounded to nearest even; f64 to none. On the CPU.
void convert_into(const View& from, const View& to, std::string_view op, const LinearRun& run = {});
[[nodiscard]] Tensor converted(const View& from, DType type, std::string_view op,
                               const LinearRun& run = {});

}  // namespace octavo
