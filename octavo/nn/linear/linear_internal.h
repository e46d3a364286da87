// Functions shared by the source files of Linear.
#pragma once

#include <string_view>

#include "octavo/nn/linear/linear_pass.h"

namespace octavo {

// Throws Error that names the tensor. `op` is "Linear", or what a module calls itself.
void check_parameters(const LinearWeight& weight, const Tensor& bias, std::string_view op);
void check_forward(const LinearCall& call, std::string_view op);
// Checks that the quantizers accept the tensors of the call, before anything changes.
void check_quantizers(const LinearCall& call, const QuantizerSet& set, std::string_view op);
// Checks that the cached codes belong to this weight.
void check_cache(const LinearCall& call, std::string_view op);
void check_backward(const Tensor& dy, const LinearSaved& saved);

// Of products of codes: the run's, or where that is native the recipe's.
Accumulator accumulator_of(const LinearRun& run, const Recipe& recipe);

// linear_backward without the end of the step, which may wait for other threads and so must not run
// under a layer's lock.
LinearGradients linear_gradients(const Tensor& dy, const LinearSaved& saved,
                                 const LinearGradients& before);

// The same memory with leading dimensions collapsed into one.
View as_matrix(const View& view, std::string_view op, std::string_view name);
View transposed_view(View matrix);

// By the quantizer of a role, into memory of run.make, where there is one. The caller holds the
// lock of the set's layer.
struct QuantizedCopies {
  TensorRole role;
  bool rowwise, columnwise;
  bool gathers = true;  // false: delayed scaling records no amax
};
QuantizedTensor quantized(QuantizerSet& set, const QuantizedCopies& copies, const View& values,
                          const LinearRun& run);

}  // namespace octavo
