#include "octavo/base/file/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/stale_internal.h"
#include "octavo/base/file/temporary_name_internal.h"
#include "octavo/base/file/write_behind_internal.h"

namespace octavo {
namespace {

// The files that a signal handler has to remove. A handler may only use static memory. A program
// with more open files than slots leaves some temporary files behind when a signal kills it; their
// names say what they are.
enum class SlotState : int { free, changing, taken };
struct PendingSlot {
  std::atomic<SlotState> state{SlotState::free};
  std::array<char, PATH_MAX> path{};
};
std::array<PendingSlot, 16> pending_slots;
static_assert(std::atomic<SlotState>::is_always_lock_free);

int take_slot(const std::string& path) {
  for (std::size_t i = 0; i < pending_slots.size() && path.size() < PATH_MAX; ++i) {
    PendingSlot& slot = pending_slots[i];
    SlotState expected = SlotState::free;
    if (!slot.state.compare_exchange_strong(expected, SlotState::changing)) continue;
    std::memcpy(slot.path.data(), path.c_str(), path.size() + 1);
    slot.state.store(SlotState::taken);
    return static_cast<int>(i);
  }
  return -1;
}

void free_slot(int slot) {
  if (slot >= 0) pending_slots[static_cast<std::size_t>(slot)].state.store(SlotState::free);
}

std::string resolved(const std::string& op, const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return path;
  if (S_ISLNK(status.st_mode)) {
    std::array<char, PATH_MAX> target{};
    if (realpath(path.c_str(), target.data()) == nullptr)
      fail_on_file(errno, path, op, "'", path,
                   "' is a link to nothing; remove it or give another name");
    return resolved(op, target.data());
  }
  if (S_ISDIR(status.st_mode))
    fail_on_file(EISDIR, path, op, "'", path, "' is a folder; expected the name of a file");
  if (!S_ISREG(status.st_mode))
    fail_on_file(EINVAL, path, op, "'", path,
                 "' is a device or pipe; expected the name of a plain file; output is renamed into "
                 "place when it is whole");
  return path;
}

}  // namespace

WholeFile::WholeFile(std::string op, const std::string& path, unsigned mode)
    : op_(std::move(op)), path_(resolved(op_, path)) {
  const std::size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path_.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path_ : path_.substr(slash + 1);
  if (name.empty()) fail_on_file(EISDIR, path, op_, "'", path, "' is no name for a file");
  temporary_ = text(folder, temporary_name(name));
  descriptor_ = unless_stale([&] {
    return open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0666U);
  });
  if (descriptor_ < 0) fail_io("create", errno);
  pending_slot_ = take_slot(temporary_);
}

WholeFile::~WholeFile() {
  if (descriptor_ < 0) return;
  behind_.reset();  // before the descriptor it writes to
  close(descriptor_);
  unlink(temporary_.c_str());
  free_slot(pending_slot_);
}

void WholeFile::fail_io(std::string_view doing, int error) const {
  std::string fix;
  if (error == ENOSPC || error == EDQUOT) fix = "; free space or write elsewhere";
  if (error == EFBIG) fix = "; raise the file size limit (ulimit -f) or write elsewhere";
  fail_on_file(error, path_, op_, "could not ", doing, " '", path_, "': ", std::strerror(error),
               fix);
}

void WholeFile::reserve(std::int64_t bytes) {
  if (bytes <= 0 || fallocate(descriptor_, 0, 0, bytes) == 0) return;
  // Many file systems cannot preallocate; only "no space left" is reported.
  if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT) {
    const int error = errno;
    fail_io(text("reserve ", bytes, " bytes for"), error);
  }
}

void WholeFile::write_behind(std::uint64_t memory) {
  behind_ = std::make_unique<WriteBehind>(descriptor_, temporary_, memory);
}

void WholeFile::write(std::span<const std::byte> bytes) {
  write_at(written_, bytes);
  written_ += bytes.size();
}

void WholeFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  if (behind_ != nullptr) {
    if (const int error = behind_->write(offset, bytes); error != 0) fail_io("write", error);
    return;
  }
  while (!bytes.empty()) {
    const ssize_t written =
        pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void WholeFile::flush() {
  if (behind_ != nullptr)
    if (const int error = behind_->finish(); error != 0) fail_io("write", error);
  behind_.reset();
  if (fsync(descriptor_) != 0) fail_io("write", errno);
}

void WholeFile::commit() {
  flush();
  if (unless_stale([&] { return rename(temporary_.c_str(), path_.c_str()); }) != 0)
    fail_io("rename the finished file to", errno);
  free_slot(pending_slot_);
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

void remove_unfinished_files() noexcept {
  for (const PendingSlot& slot : pending_slots) {
    if (slot.state.load() == SlotState::taken) unlink(slot.path.data());
  }
}

}  // namespace octavo
