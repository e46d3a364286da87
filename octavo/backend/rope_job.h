// Rotary position embedding as plain data for the kernel interface (kernels.h).
#pragma once

#include <cstdint>

#include "octavo/tensor/view.h"

namespace octavo {

// [batches, tokens, heads, size] of f32 or bf16, where the elements of a head are contiguous.
struct RopeOperand {
  void* data = nullptr;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;  // bytes
};

// Rotates elements i and i + pairs of every head by the angle position * inverse_frequencies[i]; a
// token's position is first_position plus its index. What comes after 2 * pairs elements is copied.
//   angle = RN(f32(position) * frequency);  c = RN(RN(cos angle) * factor);  s likewise
//   out[i] = RN(RN(x[i] c) - RN(x[i + pairs] s));  out[i + pairs] = RN(RN(x[i + pairs] c) + RN(x[i]
//   s))
// in f32, the last rounding to the type of the operands: one definition, the same bits everywhere
// that cos and sin are.
struct RopeJob {
  RopeOperand x{}, out{};  // the same memory, or memory without overlap
  DType dtype = DType::f32;
  std::int64_t batches = 0, tokens = 0, heads = 0, size = 0;
  const float* inverse_frequencies = nullptr;
  std::int64_t pairs = 0;
  std::int64_t first_position = 0;
  float factor = 1.0F;
};

}  // namespace octavo
