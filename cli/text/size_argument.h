// Sizes on the command line: 256M, 1.5GiB, 1000000.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::cli {

// K, M, G and T are powers of 1024, with or without "B" or "iB". Throws UsageError.
std::uint64_t size_argument(std::string_view where, const std::string& typed);

// The same for a memory limit: at least 16 MiB.
std::uint64_t memory_argument(std::string_view where, const std::string& typed);

}  // namespace octavo::cli
