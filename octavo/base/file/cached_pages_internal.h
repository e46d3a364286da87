// Reading back what was written, from the storage and not from memory.
#pragma once

#include <string>

namespace octavo {

// Drops the pages of a file that this machine keeps in memory (posix_fadvise), so that what is read
// next comes from the storage. Best effort: the kernel keeps pages that a process has mapped, and
// may keep any. What lies beyond is out of reach: the cache of the disk itself, of its controller,
// and of the server of a network file system, which answers with what it was sent, whether that is
// on its disks or not.
void drop_cached(const std::string& path);

}  // namespace octavo
