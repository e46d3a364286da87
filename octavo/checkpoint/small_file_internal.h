// Reads a small file whole: config.json, an index, a progress record.
#pragma once

#include <cstdint>
#include <string>

namespace octavo {

// Throws Error(io) when the file cannot be read, Error(invalid_argument) when it is longer than
// `most` bytes.
[[nodiscard]] std::string read_small_file(const std::string& path, std::uint64_t most);

}  // namespace octavo
