// Embedding: rows of a table by token, times a factor where the model has one (Gemma).
#pragma once

#include <cstdint>
#include <span>

#include "octavo/base/macros.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct OCTAVO_API Embedding {
  Tensor weight{};  // [vocabulary, size] of f32, bf16 or f16
  double scale = 1.0;

  // Into [ids.size(), size] of f32 or bf16. Throws Error(invalid_argument) that names an id beyond
  // the vocabulary.
  void forward_into(std::span<const std::int32_t> ids, const View& out,
                    const LinearRun& run = {}) const;
};

}  // namespace octavo
