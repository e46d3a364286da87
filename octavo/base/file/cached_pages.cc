#include <fcntl.h>
#include <unistd.h>

#include "octavo/base/file/cached_pages_internal.h"
#include "octavo/base/file/descriptor_internal.h"

namespace octavo {

void drop_cached(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return;   // reading it will say why
  (void)fdatasync(file.number());  // a page that is not on the storage yet is not dropped
  (void)posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace octavo
