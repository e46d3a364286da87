// File identity (device and inode), independent of links: answers "is the output one of the
// inputs?".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace octavo {

struct FileId {
  std::uint64_t device = 0, inode = 0;
  constexpr bool operator==(const FileId&) const = default;
};

// Empty if the file does not exist or stat is not permitted.
std::optional<FileId> file_id(const std::string& path);
std::optional<FileId> file_id(int descriptor);

}  // namespace octavo
