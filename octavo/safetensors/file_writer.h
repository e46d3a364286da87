// FileWriter: writes a safetensors file atomically. All tensors are declared first, so the header
// is known; then their bytes come in any order, in pieces of any size, from any thread; finish()
// renames the file into place. Until then, and if it is never called, an existing file of that name
// is untouched. The same tensors give the same file, byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/safetensors/header.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo {
class WholeFile;
}

namespace octavo::safetensors {

struct WriteOptions {
  Metadata metadata{};
  std::vector<std::string> sources{};  // paths of files that must not be replaced
  // Buffer size of a write-behind thread; 0: the calling thread writes.
  std::uint64_t write_behind = 0;
  bool sum = false;      // keep written_checksum()
  unsigned mode = 0666;  // permissions of the file, of which the umask takes away
};

class OCTAVO_API FileWriter {
 public:
  // Throws Error(invalid_argument) for tensors that cannot be in one file (see place_tensors),
  // Error(io) when the file cannot be created, the disk is too small, or it is one of the sources.
  FileWriter(const std::string& path, std::vector<TensorPlan> tensors,
             const WriteOptions& options = {});
  // A file of another format: its first bytes, and the places of its tensors after them. Gaps
  // between tensors become zeros. The metadata of the options are not used.
  FileWriter(const std::string& path, Header placed, std::string_view first_bytes,
             const WriteOptions& options);
  ~FileWriter();  // without finish() nothing is left behind

  // The position of each tensor. header().tensors is in file order: writing in that order is
  // fastest.
  [[nodiscard]] const Header& header() const { return header_; }
  // Throws Error when the tensor was not planned.
  [[nodiscard]] const TensorEntry& at(std::string_view name) const;

  // Writes a piece of a tensor at byte `offset` of the tensor. Writing a piece again is allowed.
  void write(const TensorEntry& tensor, std::uint64_t offset, std::span<const std::byte> bytes);
  // Everything to disk, under a temporary name still: what is left to finish() takes a moment.
  void flush();
  // Throws Error(invalid_argument) when a byte was never written: a hole would read as zeros.
  void finish();
  // data_checksum() of the file (data_checksum.h) without reading it, where every byte was written
  // once.
  [[nodiscard]] std::uint64_t written_checksum() const { return sum_; }

 private:
  void fill_gaps();
  void note_written(std::uint64_t begin, std::uint64_t end, std::uint64_t sum);
  void check_is_no_source() const;

  std::vector<std::string> sources_;
  Header header_;
  std::unique_ptr<WholeFile> file_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t>
      written_;  // begin -> end in the data; disjoint and not adjacent
  bool sums_, finished_ = false;
  std::uint64_t sum_ = 0;
};

}  // namespace octavo::safetensors
