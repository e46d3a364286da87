// Values in another type: what a tensor that is not quantized needs where the output has one type
// for all of them (a GGUF source), or another for some (norms of a GGUF file are f32).
#pragma once

#include <cstddef>
#include <span>

#include "octavo/safetensors/stored_type.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Are both types of values, and different?
[[nodiscard]] bool needs_recast(safetensors::StoredType from, safetensors::StoredType to);

// Whole elements of `from`, rounded to nearest even (beyond the type's range: Inf); of f64 by way
// of f32. One thread.
[[nodiscard]] Tensor recast(std::span<const std::byte> bytes, safetensors::StoredType from,
                            safetensors::StoredType to);

}  // namespace octavo
