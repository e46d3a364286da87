// The random Hadamard transform that spreads an outlier over its sixteen neighbours before FP4
// sees it: signs flipped by a fixed mask, then an orthonormal Hadamard matrix. In a dot product of
// two operands treated alike it cancels out.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/scale/peer_scale.h"

namespace octavo {

inline constexpr int kHadamardSize = 16;

// Whether results of the transform are rounded to bf16: Transformer Engine makes them as a product
// of bf16 matrices.
OCTAVO_HD constexpr bool rotates_to_bf16(Arith arith) { return arith == Arith::te; }

// In place; four rounds of f32 additions in this order, then times 1/4, and rounded where
// to_bf16. The transform without signs is its own inverse, so the inverse is hadamard16 with no
// signs followed by flipping them.
OCTAVO_HD constexpr void hadamard16(float* x, std::uint16_t signs, bool to_bf16 = false) {
  for (int i = 0; i < kHadamardSize; ++i)
    if ((signs >> i & 1) != 0) x[i] = -x[i];
  for (int half = 1; half < kHadamardSize; half *= 2) {
    for (int i = 0; i < kHadamardSize; ++i) {
      if ((i & half) != 0) continue;
      const float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
  for (int i = 0; i < kHadamardSize; ++i) x[i] *= 0.25F;
  if (!to_bf16) return;
  for (int i = 0; i < kHadamardSize; ++i) x[i] = rounded_to_bf16(x[i]);
}

OCTAVO_HD constexpr void inverse_hadamard16(float* x, std::uint16_t signs) {
  hadamard16(x, 0);
  for (int i = 0; i < kHadamardSize; ++i)
    if ((signs >> i & 1) != 0) x[i] = -x[i];
}

}  // namespace octavo
