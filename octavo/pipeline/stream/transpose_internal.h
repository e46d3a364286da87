// A matrix turned, in memory: experts lie [in, out] in some models, and [out, in] in most.
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
