// An output file that appears whole or not at all: written under a temporary name in the same
// folder, flushed to the disk, then renamed. Whatever happens before commit() (an error, a full
// disk, a signal, a lost machine) leaves the final name as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace octavo::cli {

class WholeFile {
 public:
  // `op` begins the error messages. Refuses names that are there and are no plain file: a rename
  // onto /dev/null would replace it. A symbolic link stays, and what it points to is replaced.
  WholeFile(std::string op, const std::string& path);
  ~WholeFile();  // removes the temporary file unless committed
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  // Claims disk space, so that a disk too small is known before the work and not after it.
  void reserve(std::int64_t bytes);
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail_io(std::string_view doing, int error) const;

  std::string op_, path_, temporary_;
  int descriptor_ = -1;
};

void write_whole_file(const std::string& op, const std::string& path, std::string_view content);

// Writes beyond a file size limit give an error instead of a signal, and Ctrl-C removes temporary
// files. Called once at start.
void prepare_signals();

}  // namespace octavo::cli
