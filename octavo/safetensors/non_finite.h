// NaN and Inf among a tensor's bytes as they lie in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/safetensors/stored_type.h"

namespace octavo::safetensors {

struct NonFiniteFound {
  std::int64_t nan = 0, inf = 0;
};

// Whole elements of bf16, f16, f32 or f64; of other types none. (Codes of FP8 and fewer bits have
// scales beside them, and are looked at where those are known.)
[[nodiscard]] NonFiniteFound non_finite_in(std::span<const std::byte> bytes, StoredType type);

}  // namespace octavo::safetensors
