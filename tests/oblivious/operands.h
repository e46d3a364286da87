// Operands of products and attention, whose bytes may be anything.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/ops/gemm.h"
#include "octavo/quant/quantize.h"

namespace octavo::oblivious {

inline std::span<std::uint8_t> bytes_of(const Tensor& tensor) {
  const std::span<std::byte> all = tensor.bytes();
  return {reinterpret_cast<std::uint8_t*>(all.data()), all.size()};
}

// A matrix, or a stack of them, of a preset; or of values where the name is one of theirs.
struct HiddenOperand {
  Tensor values{};
  QuantizedTensor codes{};

  HiddenOperand(std::string_view name, const Shape& shape) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      if (name == dtype_name(dtype)) values = Tensor::values(shape, dtype);
    if (values.owner() != nullptr) return;
    codes = make_quantized(shape, DType::f32, preset(name));
    codes.columnwise = {};
  }
  [[nodiscard]] Operand operand() const {
    return codes.rowwise.exists() ? Operand(codes) : Operand(values);
  }
  void add_to(std::vector<std::span<std::uint8_t>>& all) const {
    const QuantizedCopy& copy = codes.rowwise;
    for (const Tensor* tensor : {&values, &copy.codes, &copy.scales, &copy.tensor_scale})
      if (tensor->owner() != nullptr) all.push_back(bytes_of(*tensor));
  }
};

}  // namespace octavo::oblivious
