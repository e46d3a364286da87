// A hash of bytes that lie in rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace octavo {

// A number that another content would not have (not for adversaries). Rows are hashed by
// themselves, with their index, and added up, so that it does not matter in how many calls whole
// rows come. The last row may be shorter than the others.
[[nodiscard]] std::uint64_t content_hash(std::span<const std::byte> bytes, std::int64_t row_bytes,
                                         std::int64_t first_row);

}  // namespace octavo
