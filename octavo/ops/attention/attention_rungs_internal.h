// Inputs of a rung: Q, K and V quantized, smoothed and rotated as the rung defines.
#pragma once

#include "octavo/ops/attention/attention_call_internal.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// A kernel job without its outputs, and the memory that it points to.
struct RungInputs {
  AttentionJob job{};
  QuantizedTensor q{}, k{}, v{};  // where they were quantized for this rung
  Tensor mean{};                  // [B, Hkv, D]: the mean subtracted from K, in the unrotated basis
  bool rotated = false;           // Q and K are Hadamard-transformed
  bool is_plan = false;           // planned_inputs
  Tensor memory_of_shift{}, memory_of_v{};
  // Where they were rounded to f16.
  Tensor halves_of_q{}, halves_of_k{}, halves_of_v{};
  // Q and K as they were before they were quantized, where they were smoothed or rotated.
  Tensor prepared_q{}, prepared_k{};
};
[[nodiscard]] RungInputs rung_inputs(const AttentionCall& call, AttentionRung rung,
                                     const Exec& exec);

// The same in shapes and formats alone, for questions about kernels: what the rung quantizes has
// memory without numbers, nothing is computed, and no quantizer is asked.
[[nodiscard]] RungInputs planned_inputs(const AttentionCall& call, AttentionRung rung,
                                        const Exec& exec);

// [B, H, rows, D] values as f32 through attention_prepare; rows beyond lengths are zeros. `mean`
// as in AttentionPrepareJob.
[[nodiscard]] Tensor prepared(const AttentionCall& call, const AttentionStack& from,
                              std::span<const std::int64_t> lengths, float* mean, bool hadamard,
                              bool undo, const Exec& exec);

}  // namespace octavo
