// ProductInput: what a product takes of a Linear's input: codes, values of another type, or the
// input as it is.
#pragma once

#include <optional>

#include "octavo/nn/converted_internal.h"
#include "octavo/nn/frozen_linear.h"
#include "octavo/ops/gemm.h"

namespace octavo {

class ProductInput {
 public:
  ProductInput(const InputQuantization& input, const View& x, const LinearRun& run) : values_(x) {
    if (input.scaling) {
      codes_ = input.quantize(x, run);
    } else if (input.values != DType::f32) {
      rounded_ = converted(x, input.values, "Linear", run);
      values_ = rounded_.view();
    }
  }

  [[nodiscard]] Operand operand() const { return codes_ ? Operand(*codes_) : Operand(values_); }

 private:
  std::optional<QuantizedTensor> codes_{};
  Tensor rounded_{};
  View values_;
};

}  // namespace octavo
