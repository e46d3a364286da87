// What the files of Linear share.
#pragma once

#include <string_view>

#include "octavo/nn/linear_pass.h"

namespace octavo {

// Throws Error that names the tensor. `op` is "Linear", or what a module calls itself.
void check_parameters(const LinearWeight& weight, const Tensor& bias, std::string_view op);
void check_forward(const LinearCall& call, std::string_view op);
void check_backward(const Tensor& dy, const LinearSaved& saved);

// The same memory with leading dimensions as one.
View as_matrix(const View& view, std::string_view op, std::string_view name);
View transposed_view(View matrix);

// Into memory of run.make, where there is one.
QuantizedTensor quantized(Quantizer& quantizer, const View& values, const LinearRun& run);

}  // namespace octavo
