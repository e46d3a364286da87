#include "octavo/base/file/file_id.h"

#include <sys/stat.h>

namespace octavo {
namespace {

FileId id_of(const struct stat& status) {
  return {static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino)};
}

}  // namespace

std::optional<FileId> file_id(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return id_of(status);
}

std::optional<FileId> file_id(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return std::nullopt;
  return id_of(status);
}

}  // namespace octavo
