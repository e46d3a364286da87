// What tests of this room share.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/nn/linear.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Numbers that look random, of magnitudes up to `size`.
template <typename Real = float>
Tensor noise(const Shape& shape, double step, double size = 1.0) {
  const Tensor tensor = Tensor::values(shape, dtype_of<Real>());
  std::size_t i = 1;
  for (Real& value : tensor.span<Real>()) {
    value = static_cast<Real>(size * std::sin(step * static_cast<double>(i * i % 9973)));
    ++i;
  }
  return tensor;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.bytes().size() == b.bytes().size() &&
         std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0;
}

// What is thrown: the code, and the message.
template <typename Work>
std::pair<std::optional<ErrorCode>, std::string> error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {std::nullopt, ""};
}

}  // namespace octavo
