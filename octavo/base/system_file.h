// Text of a small file of the system (/sys, /proc), read with a bound and without an error.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace octavo {

// Longer than any list of CPUs that Linux prints.
inline constexpr std::size_t kSystemFileBytes = 16 * 1024;

// All of the file, without the white space at its end. Empty where it cannot be read, is no regular
// file, or is longer.
[[nodiscard]] std::optional<std::string> read_system_file(const std::string& path);

}  // namespace octavo
