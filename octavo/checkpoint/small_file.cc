#include "octavo/checkpoint/small_file_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/stale_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "checkpoint";

std::string read_once(const std::string& path, std::uint64_t most) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    fail_on_file(errno, path, kOp, "could not open '", shown(path, 200),
                 "': ", std::strerror(errno));
  const Descriptor closed_at_the_end(descriptor);
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    fail_on_file(S_ISDIR(status.st_mode) ? EISDIR : EINVAL, path, kOp, "'", shown(path, 200),
                 "' is no plain file");
  if (static_cast<std::uint64_t>(status.st_size) > most)
    fail(ErrorCode::invalid_argument, kOp, "'", shown(path, 200), "' has ", status.st_size,
         " bytes; expected at most ", most);
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t got = read(descriptor, content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      fail_on_file(got < 0 ? errno : EIO, path, kOp, "could not read '", shown(path, 200),
                   "': ", got < 0 ? std::strerror(errno) : "it became shorter");
    done += static_cast<std::size_t>(got);
  }
  return content;
}

}  // namespace

std::string read_small_file(const std::string& path, std::uint64_t most) {
  std::string content;
  // Any of its steps may find that the file was replaced.
  const auto attempt = [&] {
    try {
      content = read_once(path, most);
      return 0;
    } catch (const FileError& error) {
      if (error.number() != ESTALE) throw;
      errno = ESTALE;
      return -1;
    }
  };
  if (unless_stale(attempt) != 0)
    fail_on_file(ESTALE, path, kOp, "could not read '", shown(path, 200),
                 "': ", std::strerror(ESTALE));
  return content;
}

}  // namespace octavo
