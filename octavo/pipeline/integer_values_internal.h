// Stored integers and booleans as numbers, for comparing.
#pragma once

#include <cstddef>
#include <span>

#include "octavo/report/value_error.h"
#include "octavo/safetensors/stored_type.h"

namespace octavo {

// True for integers of any size, and booleans.
[[nodiscard]] bool is_integer(safetensors::StoredType type);
// All of them, exactly.
[[nodiscard]] WideValues integer_values(std::span<const std::byte> bytes,
                                        safetensors::StoredType type);

}  // namespace octavo
