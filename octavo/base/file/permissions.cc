#include "octavo/base/file/permissions.h"

#include <sys/stat.h>

#include <cerrno>

namespace octavo {

unsigned permissions_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return status.st_mode & kAnyPermissions;
  return errno == ENOENT || errno == ENOTDIR ? kAnyPermissions : 0600;
}

}  // namespace octavo
