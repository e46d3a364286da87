// Transposes a matrix in memory: some models store experts as [in, out], most as [out, in].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/tensor/dtype.h"

namespace octavo {

// Values of this type, [rows, cols] to [cols, rows].
void transpose(std::span<const std::byte> from, std::int64_t rows, std::int64_t cols, DType dtype,
               std::span<std::byte> to);

}  // namespace octavo
