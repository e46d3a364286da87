// Parses and validates the header of a safetensors file: 8 bytes of little-endian length N, then N
// bytes of JSON with every tensor's dtype, shape and data_offsets. All errors of a header are found
// here, before anything is allocated or read by it; docs/numerics/safetensors.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/safetensors/stored_type.h"

namespace octavo::safetensors {

inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct TensorEntry {
  std::string name;  // untrusted: never used as a path, never printed unescaped
  StoredType type = StoredType::f32;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // data_offsets: bytes from the beginning of the data

  [[nodiscard]] std::uint64_t nbytes() const { return end - begin; }
  bool operator==(const TensorEntry&) const = default;
};

using Metadata = std::map<std::string, std::string, std::less<>>;

struct OCTAVO_API Header {
  std::vector<TensorEntry> tensors;  // in file order; together they fill the data without a gap
  Metadata metadata;
  std::uint64_t data_begin = 0;  // in the file
  std::uint64_t data_bytes = 0;

  // null if there is no such tensor.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;

  std::vector<std::uint32_t> by_name;  // indices of tensors, sorted by name; for find()
};

struct ReadOptions {
  bool strict = false;  // also reject duplicate keys, and white space before the header
};

// The header length from a file's first 8 bytes. Throws Error unless the header fits into the file,
// so allocating that much is safe. `file` is for messages only, here and below.
OCTAVO_API std::uint64_t read_header_length(std::span<const std::byte> first_bytes,
                                            std::uint64_t file_bytes, std::string_view file);

// Parses the JSON. Throws Error(invalid_argument) when it is invalid, or when the tensors do not
// fill a file of this size exactly.
OCTAVO_API Header parse_header(std::string_view json, std::uint64_t file_bytes,
                               std::string_view file, const ReadOptions& options = {});

// Both steps, for a file in memory.
OCTAVO_API Header parse_header_of(std::span<const std::byte> whole_file, std::string_view file,
                                  const ReadOptions& options = {});

}  // namespace octavo::safetensors
