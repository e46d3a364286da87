// GPTQ (Frantar et al., 2022): codes of a weight that keep the layer's results, not each number.
// Columns are rounded one after the other, and each makes up for the errors of those before it, by
// the second moments of what enters the layer (its Hessian H = E[x x^T]):
//   const GptqResult made = gptq(weight, hessian, preset("nvfp4"));
// Scales are those that quantize() gives the weight, so the codes are of the same format and are
// written like any others. docs/numerics/gptq.md defines what is computed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/view.h"

namespace octavo {

// In which order columns are rounded: the last have the fewest left to make up for their errors.
enum class ColumnOrder : std::uint8_t {
  natural,     // as they are
  activation,  // the largest E[x^2] first ("act-order", with scales of the weight as it is)
};
[[nodiscard]] OCTAVO_API std::string_view name_of(ColumnOrder order);
[[nodiscard]] OCTAVO_API ColumnOrder parse_column_order(std::string_view name);

struct GptqOptions {
  double damping = 0.05;  // of the mean of H's diagonal, added to it
  ColumnOrder order = ColumnOrder::natural;
  int threads = 0;                    // 0: all; no bit depends on it
  const float* given_amax = nullptr;  // as in QuantizeOptions: shared tensor scales
  // As in QuantizeOptions: what policy wmse weighs the squared errors of columns by. It chooses the
  // scales, the Hessian chooses the codes.
  std::span<const float> column_weights{};
};

// Errors are those of the layer's results on the inputs that H is of, relative to the results:
// tr(D H D^T) / tr(W H W^T), with D the difference of weights.
struct GptqResult {
  QuantizedTensor codes{};
  double error = 0.0;
  double rounded_error = 0.0;  // of quantize()
};

// Hessians are factored by Eigen: "" where octavo was built with it, else what was missing.
[[nodiscard]] OCTAVO_API std::string why_gptq_is_unavailable();

// weight: [N, K], f32, f16 or bf16, of any strides; hessian: [K, K], f32 or f64, dense and
// symmetric (its lower triangle is read). Any preset with scales along the row or in blocks,
// rowwise and in row-major order. Throws Error(invalid_argument) for NaN or Inf in either, a
// diagonal below zero, and a Hessian that is singular although it is damped; Error(unsupported) for
// another scaling (a columnwise copy, a Hadamard transform ...), and where octavo was built without
// Eigen. The caller's rounding direction and flushing to zero do not matter.
[[nodiscard]] OCTAVO_API GptqResult gptq(const View& weight, const View& hessian,
                                         const Scaling& scaling, const GptqOptions& options = {});

}  // namespace octavo
