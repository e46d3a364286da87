// GptqMemory: what GPTQ needs beside a walk's layer and hidden states.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/pipeline/plan/plan.h"

namespace octavo::gptq_detail {

struct GptqMemory {
  // Of the product that needs most: its Hessian and factor, and copies of its weight.
  std::uint64_t product = 0;
  // By which the largest layer grows: quantized weights are f32 values for what comes after them,
  // and their codes are kept until the layer is stored.
  std::uint64_t layer = 0;
  std::string weight{};    // that needs most
  std::int64_t width = 0;  // its channels

  [[nodiscard]] std::uint64_t all() const { return product + layer; }
  [[nodiscard]] std::string text_of() const;  // what all() is of, for messages
};

// Of one weight [rows, width]: values of `value_bytes` each, codes and scales of `code_nbytes`
// together.
[[nodiscard]] std::uint64_t product_nbytes(std::int64_t rows, std::int64_t width,
                                           std::int64_t value_bytes, std::uint64_t code_nbytes);

// Of the weights of decoder layers that a plan quantizes.
[[nodiscard]] GptqMemory gptq_memory(const QuantizePlan& plan);

// The N of "model.layers.N.mlp.up_proj.weight"; -1 where there is none.
[[nodiscard]] std::int64_t layer_in_name(std::string_view name);

}  // namespace octavo::gptq_detail
