// Test helpers of nn/.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/nn/linear/linear.h"
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

// The texts that a layer warns with.
struct Heard {
  std::vector<std::string> texts;
  [[nodiscard]] LinearOptions options() {
    return {.warn = [this](std::string_view text) { texts.emplace_back(text); }};
  }
};

inline constexpr std::int64_t kLayerSize = 32;

// One step of a layer of kLayerSize squared: forward inside the scope, backward outside of it.
inline void train(Linear& layer, const Recipe& recipe, double step) {
  Tensor y;
  {
    const auto scope = autocast(recipe);
    y = layer.forward(noise({kLayerSize, kLayerSize}, step));
  }
  (void)layer.backward(noise(y.shape(), 0.77 * step));
}

}  // namespace octavo
