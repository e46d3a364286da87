// Norms and activations as plain data that crosses the kernel door.
#pragma once

#include <cstdint>

#include "octavo/tensor/view.h"

namespace octavo {

// What a row of x becomes on its way to be stored or quantized. The result is f32, never rounded to
// 16 bits in between. docs/numerics/producers.md has the formulas, and how far from the reference,
// which computes in f64 and rounds once, another backend may be.
enum class ProducerKind : std::uint8_t { layer_norm, rms_norm, gelu, gelu_tanh, relu, silu };

struct Producer {
  ProducerKind kind = ProducerKind::relu;
  // Activations only: x has 2N columns, and activation(first N) * (last N) comes out.
  bool gated = false;

  // Norms only. weight and bias are 1 x cols values of any type, or have no data: then they are
  // left out. rms_norm has no bias.
  Matrix weight{}, bias{};
  bool zero_centred = false;  // what is multiplied by is 1 + weight
  double epsilon = 1e-5;      // at least 0
  float* mean = nullptr;      // if given, gets that of each row; layer_norm only
  float* inv_std = nullptr;   // if given, gets 1 / sqrt(variance + epsilon) of each row

  [[nodiscard]] constexpr bool is_norm() const {
    return kind == ProducerKind::layer_norm || kind == ProducerKind::rms_norm;
  }
  // Of what comes out.
  [[nodiscard]] constexpr std::int64_t cols(std::int64_t x_cols) const {
    return gated ? x_cols / 2 : x_cols;
  }
};

}  // namespace octavo
