// FileReader: a safetensors file, open for reading. Opening checks the header; after that any byte
// range of any tensor can be read into the caller's memory, from any thread. The file is not
// memory-mapped: a reader's memory is its header, and a file that shrinks is an Error, not a
// SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/safetensors/header.h"
#include "octavo/tensor/tensor.h"

namespace octavo::safetensors {

// Tensors that a file of another format holds, as a safetensors file would have them. From any
// thread.
class OCTAVO_API TensorSource {
 public:
  virtual ~TensorSource();
  [[nodiscard]] virtual const Header& header() const = 0;
  // `into` is inside the tensor.
  virtual void read(const TensorEntry& tensor, std::uint64_t offset,
                    std::span<std::byte> into) const = 0;
  // Rows that are made together: reading fewer of them, from a multiple of this on, is no faster.
  [[nodiscard]] virtual std::int64_t rows_together(const TensorEntry& tensor) const;
  // Of a tensor that is made of several: the checkpoint's files with parts of it.
  [[nodiscard]] virtual std::vector<std::size_t> files_of(const TensorEntry& tensor) const;
};

class OCTAVO_API FileReader {
 public:
  // Throws Error(io) when the file cannot be read or is not a regular file, Error(invalid_argument)
  // when its header is invalid.
  explicit FileReader(const std::string& path, const ReadOptions& options = {});
  // A file of another format, whose tensors `source` reads.
  FileReader(std::string path, std::shared_ptr<const TensorSource> source);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;

  [[nodiscard]] const Header& header() const { return header_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // For a missing tensor find() returns null, at() throws Error.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const { return header_.find(name); }
  [[nodiscard]] const TensorEntry& at(std::string_view name) const;

  // Fills `into` with the tensor's bytes from `offset` on. Throws Error(invalid_argument) when the
  // piece is not inside the tensor, Error(io) when the file cannot be read or has become shorter.
  void read(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> into) const;

  // See TensorSource; 1 for safetensors files.
  [[nodiscard]] std::int64_t rows_together(const TensorEntry& tensor) const;
  [[nodiscard]] std::vector<std::size_t> files_of(const TensorEntry& tensor) const;

  // The whole tensor. Throws Error(unsupported) for types and shapes that octavo's Tensor does not
  // support, and for packed rows that do not end on a byte: read() gives their bytes.
  [[nodiscard]] Tensor read_tensor(const TensorEntry& tensor) const;

 private:
  void read_file(std::uint64_t position, std::span<std::byte> into) const;
  void close_file() noexcept;

  std::string path_;
  int descriptor_ = -1;
  std::shared_ptr<const TensorSource> source_;  // null for safetensors files
  Header header_;
};

}  // namespace octavo::safetensors
