// Counts NaN and Inf in the stored bytes of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/safetensors/stored_type.h"

namespace octavo::safetensors {

struct NonFiniteFound {
  std::int64_t nan = 0, inf = 0;
};

// `bytes` are whole elements of bf16, f16, f32 or f64; other types have none. (FP8 and narrower
// codes are checked where their scales are known.)
[[nodiscard]] NonFiniteFound non_finite_in(std::span<const std::byte> bytes, StoredType type);

}  // namespace octavo::safetensors
