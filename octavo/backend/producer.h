// Norms and activations (producers) as plain data for the kernel interface (kernels.h).
#pragma once

#include <cstdint>

#include "octavo/tensor/view.h"

namespace octavo {

// A producer computes a row that is stored or quantized without a copy in between. Its output is
// f32, never rounded to 16 bits first. docs/numerics/producers.md has the formulas, and how far
// another backend may be from the reference, which computes in f64 and rounds once.
enum class ProducerKind : std::uint8_t { layer_norm, rms_norm, gelu, gelu_tanh, relu, silu };

struct Producer {
  ProducerKind kind = ProducerKind::relu;
  // Activations only: x has 2N columns, and the output is activation(first N) * (last N).
  bool gated = false;

  // Norms only. weight and bias are 1 x cols values of any type, or have no data: then they are
  // left out. rms_norm has no bias.
  Matrix weight{}, bias{};
  bool zero_centred = false;  // multiplies by 1 + weight
  double epsilon = 1e-5;      // at least 0
  float* mean = nullptr;      // if given, receives the mean of each row; layer_norm only
  float* inv_std = nullptr;   // if given, receives 1 / sqrt(variance + epsilon) of each row

  [[nodiscard]] constexpr bool is_norm() const {
    return kind == ProducerKind::layer_norm || kind == ProducerKind::rms_norm;
  }
  // Columns of the output.
  [[nodiscard]] constexpr std::int64_t cols(std::int64_t x_cols) const {
    return gated ? x_cols / 2 : x_cols;
  }
};

}  // namespace octavo
