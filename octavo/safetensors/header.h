// The header of a safetensors file: 8 bytes of little-endian length N, then N bytes of JSON that
// name every tensor's type, shape and place in the data behind it. Everything a header can get
// wrong is found here, before anyone allocates or reads by it; docs/numerics/safetensors.md has
// the rules.
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
  std::string name;  // anything at all: never a path, never shown as it is
  StoredType type = StoredType::f32;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the beginning of the data

  [[nodiscard]] std::uint64_t nbytes() const { return end - begin; }
  bool operator==(const TensorEntry&) const = default;
};

using Metadata = std::map<std::string, std::string, std::less<>>;

struct OCTAVO_API Header {
  std::vector<TensorEntry> tensors;  // by place; together they fill the data without a gap
  Metadata metadata;
  std::uint64_t data_begin = 0;  // in the file
  std::uint64_t data_bytes = 0;

  // Nothing if there is no such tensor.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;

  std::vector<std::uint32_t> by_name;  // indices of tensors, sorted by name; what find() uses
};

struct ReadOptions {
  bool strict = false;  // also refuse keys that come twice, and white space before the header
};

// Of a file's first 8 bytes. Throws Error unless the header they announce fits into the file; so
// it is safe to allocate that much. `file` is for messages only, here and below.
OCTAVO_API std::uint64_t read_header_length(std::span<const std::byte> first_bytes,
                                            std::uint64_t file_bytes, std::string_view file);

// The JSON alone. Throws Error(invalid_argument) when anything is wrong with it, or when the
// tensors are not exactly what a file of this size holds.
OCTAVO_API Header parse_header(std::string_view json, std::uint64_t file_bytes,
                               std::string_view file, const ReadOptions& options = {});

// Both, of a file that is in memory.
OCTAVO_API Header parse_header_of(std::span<const std::byte> whole_file, std::string_view file,
                                  const ReadOptions& options = {});

}  // namespace octavo::safetensors
