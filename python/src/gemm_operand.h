// A GEMM or attention operand from Python: values, or codes with scales.
#pragma once

#include <nanobind/stl/variant.h>

#include <variant>

#include "octavo/ops/gemm.h"
#include "octavo/ops/packed_weights.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/tensor/view.h"

namespace octavo::python {

using OperandArgument = std::variant<View, QuantizedTensor*>;

inline Operand operand_of(const OperandArgument& side) {
  if (const View* values = std::get_if<View>(&side)) return {*values};
  return {*std::get<QuantizedTensor*>(side)};
}

// The right operand of a GEMM.
using RightArgument = std::variant<View, QuantizedTensor*, PackedWeights*>;

// Calls multiply(b) with b as an Operand or as packed weights.
template <typename Multiply>
auto with_right(const RightArgument& b, Multiply&& multiply) {
  if (PackedWeights* const* packed = std::get_if<PackedWeights*>(&b)) return multiply(**packed);
  if (const View* values = std::get_if<View>(&b)) return multiply(Operand(*values));
  return multiply(Operand(*std::get<QuantizedTensor*>(b)));
}

}  // namespace octavo::python
