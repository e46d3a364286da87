// A .npy file as a stream: the header at once, then its data in pieces of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cli/npy/npy.h"

namespace octavo::cli {

class NpyReader {
 public:
  // Throws Error(io) when the file cannot be read, has no good header, or is shorter than its
  // header says. What cannot tell its size (a pipe) is found short while it is read.
  NpyReader(std::string op, const std::string& path);
  ~NpyReader();
  NpyReader(const NpyReader&) = delete;
  NpyReader& operator=(const NpyReader&) = delete;

  [[nodiscard]] const NpyHeader& header() const { return header_; }
  [[nodiscard]] std::int64_t data_bytes() const { return data_bytes_; }
  // Bytes behind the array, which numpy leaves alone and so does this; 0 where that is not known.
  [[nodiscard]] std::int64_t trailing_bytes() const { return trailing_bytes_; }

  // Is this the very file that `path` names, by whatever name or link?
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
