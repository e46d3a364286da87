#include "cli/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "cli/usage.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

// The file a signal handler has to remove. A handler may only use memory that is simply there.
std::array<char, PATH_MAX> pending_path{};
std::atomic<bool> pending{false};

void set_pending(const std::string& path) {
  if (path.size() >= pending_path.size()) return;
  std::memcpy(pending_path.data(), path.c_str(), path.size() + 1);
  pending.store(true);
}

void remove_and_die(int signal_number) {
  if (pending.load()) unlink(pending_path.data());
  // The default action now, so that the caller sees death by this very signal.
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

std::string resolved(const std::string& op, const std::string& path) {
  if (path == "-") {
    throw UsageError(text('[', op,
                          "] got '-' for the output, and files are not written to stdout; ",
                          "give a name, or ./- if '-' is the name"));
  }
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return path;
  if (S_ISLNK(status.st_mode)) {
    std::array<char, PATH_MAX> target{};
    check(realpath(path.c_str(), target.data()) != nullptr, ErrorCode::io, op, "'", path,
          "' is a link to nothing; remove it or give another name");
    return resolved(op, target.data());
  }
  check(!S_ISDIR(status.st_mode), ErrorCode::io, op, "'", path,
        "' is a folder, wanted the name of a file");
  check(S_ISREG(status.st_mode), ErrorCode::io, op, "'", path,
        "' is a device or pipe, wanted the name of a plain file; output is renamed into place when "
        "it is whole");
  return path;
}

}  // namespace

WholeFile::WholeFile(std::string op, const std::string& path)
    : op_(std::move(op)), path_(resolved(op_, path)) {
  const std::size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path_.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path_ : path_.substr(slash + 1);
  check(!name.empty(), ErrorCode::io, op_, "'", path, "' is no name for a file");
  // Few characters of the name, lest the temporary one be too long where the final one is not.
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ =
        fmt::format("{}.{}.{}-{}.octavo-tmp", folder, name.substr(0, 64), getpid(), attempt);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && (errno != EEXIST || attempt > 100)) fail_io("create", errno);
  }
  set_pending(temporary_);
}

WholeFile::~WholeFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
  pending.store(false);
}

void WholeFile::fail_io(std::string_view doing, int error) const {
  std::string fix;
  if (error == ENOSPC || error == EDQUOT) fix = "; free space or write elsewhere";
  if (error == EFBIG) fix = "; raise the file size limit (ulimit -f) or write elsewhere";
  fail(ErrorCode::io, op_, "could not ", doing, " '", path_, "': ", std::strerror(error), fix);
}

void WholeFile::reserve(std::int64_t bytes) {
  if (bytes <= 0 || fallocate(descriptor_, 0, 0, bytes) == 0) return;
  // Many file systems cannot reserve; only "there is no room" is worth hearing.
  if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT) {
    fail_io(fmt::format("reserve {} bytes for", bytes), errno);
  }
}

void WholeFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void WholeFile::commit() {
  if (fsync(descriptor_) != 0) fail_io("write", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_io("rename the finished file to", errno);
  pending.store(false);
  close(descriptor_);
  descriptor_ = -1;
  // The folder too, so that the new name survives a lost machine; the data is safe already, and
  // some file systems cannot do this, so no error.
  const std::size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    (void)fsync(directory);
    close(directory);
  }
}

void write_whole_file(const std::string& op, const std::string& path, std::string_view content) {
  WholeFile file(op, path);
  file.write(std::as_bytes(std::span(content)));
  file.commit();
}

void prepare_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    // A shell's "nohup" and "&" have set these to be ignored, and that is to stay.
    if (std::signal(signal_number, remove_and_die) == SIG_IGN) std::signal(signal_number, SIG_IGN);
  }
}

}  // namespace octavo::cli
