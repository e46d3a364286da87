// Rotary position embedding (RoPE): rotates pairs of a head's elements by angles that grow with the
// token's position.
//   rope_into(q, {.inverse_frequencies = frequencies.view(), .first_position = 128}, q);
// Pairs are the two halves of the rotated elements (i and i + pairs), as Hugging Face's models have
// them. docs/numerics/producers.md defines the rounding: angles are f32, as models were trained
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/backend/kernels.h"
#include "octavo/base/log.h"
#include "octavo/base/macros.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct Rope {
  View inverse_frequencies{};  // f32, one for each pair; elements beyond all pairs are not rotated
  double factor = 1.0;         // multiplies cosines and sines (YaRN, LongRoPE)
  std::int64_t first_position = 0;  // of the first token; others follow it
};

struct RopeOptions {
  int threads = 0;                   // 0: all cores the thread pool has
  const Kernels* backend = nullptr;  // null: the one the registry chooses
  Log* log = nullptr;
  void* stream = nullptr;
  std::span<std::byte> workspace{};
};

// x is [tokens, heads, size] or [batch, tokens, heads, size], f32 or bf16, of any strides but the
// last. `out` is of the same type and shape: x itself, or memory that does not overlap it.
OCTAVO_API void rope_into(const View& x, const Rope& rope, const View& out,
                          const RopeOptions& options = {});
[[nodiscard]] OCTAVO_API Tensor rope(const View& x, const Rope& rope,
                                     const RopeOptions& options = {});

}  // namespace octavo
