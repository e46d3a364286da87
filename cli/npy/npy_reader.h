// Streams a .npy file: the header at once, then its data in chunks of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cli/npy/npy.h"

namespace octavo::cli {

class NpyReader {
 public:
  // Throws Error(io) when the file cannot be read, has an invalid header, or is shorter than its
  // header declares. For a file without a known size (a pipe) that is detected while reading.
  NpyReader(std::string op, const std::string& path);
  ~NpyReader();
  NpyReader(const NpyReader&) = delete;
  NpyReader& operator=(const NpyReader&) = delete;

  [[nodiscard]] const NpyHeader& header() const { return header_; }
  [[nodiscard]] std::int64_t data_bytes() const { return data_bytes_; }
  // Trailing bytes after the array, which are ignored as in numpy; 0 where the size is unknown.
  [[nodiscard]] std::int64_t trailing_bytes() const { return trailing_bytes_; }

  // True if `path` refers to this file, by any name or link.
  [[nodiscard]] bool is_same_file(const std::string& path) const;

  // Fills `bytes`, or throws Error(io).
  void read(std::span<std::byte> bytes);

 private:
  std::size_t read_some(std::span<std::byte> bytes);  // fewer only at the end of the file
  [[noreturn]] void fail_file(const std::string& problem) const;

  std::string op_, path_;
  NpyHeader header_;
  std::int64_t data_bytes_ = 0, trailing_bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace octavo::cli
