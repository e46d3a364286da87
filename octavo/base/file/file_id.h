// Which file a name means, whatever links lead to it: for "is the output one of the inputs?".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace octavo {

struct FileId {
  std::uint64_t device = 0, inode = 0;
  constexpr bool operator==(const FileId&) const = default;
};

// Nothing if there is no such file, or it may not be looked at.
std::optional<FileId> file_id(const std::string& path);
std::optional<FileId> file_id(int descriptor);

}  // namespace octavo
