// Atomic output file: written under a temporary name in the same folder, fsynced, then renamed. Any
// failure before commit() (an error, a full disk, a signal, a lost machine) leaves the final name
// as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace octavo {

class WriteBehind;

class WholeFile {
 public:
  // `op` begins the error messages. Refuses existing names that are not regular files: a rename
  // onto /dev/null would replace it. A symbolic link stays, and what it points to is replaced. The
  // new file's mode is what the umask allows of `mode`, as for any new file.
  WholeFile(std::string op, const std::string& path, unsigned mode = 0666);
  ~WholeFile();  // removes the temporary file unless committed
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  // Preallocates disk space (fallocate), so that a full disk is reported before the work starts.
  void reserve(std::int64_t bytes);
  // For a large file: later writes are buffered in `memory` bytes, and a background thread writes
  // them to disk. Errors are reported by a later write.
  void write_behind(std::uint64_t memory);
  // Appends to what write() wrote before.
  void write(std::span<const std::byte> bytes);
  // At any offset, from any number of threads. Unwritten ranges are holes of zeros.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  // fsync, under the temporary name still: commit() has only the rename left to do.
  void flush();
  void commit();  // once; nothing may be written after it

  // The final name, symbolic links followed.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail_io(std::string_view doing, int error) const;

  std::string op_, path_, temporary_;
  int descriptor_ = -1, pending_slot_ = -1;
  std::uint64_t written_ = 0;
  std::unique_ptr<WriteBehind> behind_;
};

void write_whole_file(const std::string& op, const std::string& path, std::string_view content);

// For the signal handler of a program that is about to die: removes the temporary files that are
// open now (the first 16 of them). Async-signal-safe; the library installs no handler itself.
void remove_unfinished_files() noexcept;

}  // namespace octavo
