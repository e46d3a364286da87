// A matrix turned, in memory: experts lie [in, out] in some models, and [out, in] in most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace octavo {

// Elements of 2, 4 or 8 bytes, [rows, cols] to [cols, rows].
void transpose(std::span<const std::byte> from, std::int64_t rows, std::int64_t cols,
               std::int64_t element_bytes, std::span<std::byte> to);

}  // namespace octavo
