// A safetensors file, open for reading. The header is checked when it is opened; after that any
// piece of any tensor can be read into the caller's memory, from any thread. Nothing is mapped: the
// memory a reader takes is its header, and a file that shrinks is an error, not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/safetensors/header.h"
#include "octavo/tensor/tensor.h"

namespace octavo::safetensors {

class OCTAVO_API FileReader {
 public:
  // Throws Error(io) when the file cannot be read or is no plain file, Error(invalid_argument) when
  // its header is not right.
  explicit FileReader(const std::string& path, const ReadOptions& options = {});
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;

  [[nodiscard]] const Header& header() const { return header_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // find() gives nothing, at() throws Error when there is no such tensor.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const { return header_.find(name); }
  [[nodiscard]] const TensorEntry& at(std::string_view name) const;

  // Fills `into` with the tensor's bytes from `offset` on. Throws Error(invalid_argument) when the
  // piece is not inside the tensor, Error(io) when the file cannot be read or has become shorter.
  void read(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> into) const;

  // All of it. Throws Error(unsupported) for types octavo has no arrays of, for shapes it
  // cannot have, and for packed rows that do not end on a byte: read() has their bytes.
  [[nodiscard]] Tensor read_tensor(const TensorEntry& tensor) const;

 private:
  void read_file(std::uint64_t position, std::span<std::byte> into) const;
  void close_file() noexcept;

  std::string path_;
  int descriptor_ = -1;
  Header header_;
};

}  // namespace octavo::safetensors
