// A GEMM or attention operand from Python: values, or codes with scales.
#pragma once

#include <nanobind/stl/variant.h>

#include <variant>

#include "octavo/ops/gemm.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/tensor/view.h"

namespace octavo::python {

using OperandArgument = std::variant<View, QuantizedTensor*>;

inline Operand operand_of(const OperandArgument& side) {
  if (const View* values = std::get_if<View>(&side)) return {*values};
  return {*std::get<QuantizedTensor*>(side)};
}

}  // namespace octavo::python
