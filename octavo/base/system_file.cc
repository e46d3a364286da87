#include "octavo/base/system_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace octavo {
namespace {

// Reads until the end of the file, or until `text` is full.
bool read_into(int file, std::string& text) {
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(file, text.data() + size, text.size() - size);
    if (got < 0) return false;
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return true;
}

}  // namespace

std::optional<std::string> read_system_file(const std::string& path) {
  // Where something else has that name, a pipe for example, opening it must not wait.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  struct stat facts {};
  std::string text(kSystemFileBytes + 1, '\0');
  const bool is_read = fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && read_into(file, text);
  close(file);
  if (!is_read || text.size() > kSystemFileBytes) return std::nullopt;
  text.resize(text.find_last_not_of(" \t\n") + 1);
  return text;
}

}  // namespace octavo
