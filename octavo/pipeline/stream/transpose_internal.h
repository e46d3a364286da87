// Transposes a matrix in memory: some models store experts as [in, out], most as [out, in].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace octavo {

// Elements of 2, 4 or 8 bytes, [rows, cols] to [cols, rows].
void transpose(std::span<const std::byte> from, std::int64_t rows, std::int64_t cols,
               std::int64_t element_bytes, std::span<std::byte> to);

}  // namespace octavo
