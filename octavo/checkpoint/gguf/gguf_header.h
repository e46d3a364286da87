// Parses and validates what a GGUF file says before its data: metadata (keys with values, among
// them the tokenizer) and the list of tensors. Files are untrusted: every length and count is
// checked against what the file has before anything is allocated by it. docs/numerics/gguf.md has
// the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/gguf/gguf_type.h"

namespace octavo::gguf {

inline constexpr std::string_view kOp = "gguf";  // prefix of every message
inline constexpr std::string_view kMagic = "GGUF";
inline constexpr std::uint32_t kVersion = 3;  // written; 2 differs in nothing that is read here
inline constexpr std::uint64_t kDefaultAlignment = 32;
// Metadata and list of tensors together. The largest vocabularies take 20 MB.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

enum class ValueType : std::uint8_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};

// A value of the metadata, as the file has it: little-endian bytes. Strings of an array begin with
// their length in eight bytes, which the parser has checked.
struct Value {
  ValueType type = ValueType::u8;  // of an array: of its elements
  bool is_array = false;
  std::uint64_t count = 1;  // elements of an array
  std::string bytes{};

  // The value where it is a number, a string or a boolean, and no array.
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::optional<std::int64_t> integer() const;  // of integers alone
  [[nodiscard]] std::optional<std::string_view> string() const;
  [[nodiscard]] std::optional<bool> boolean() const;
  // The elements where it is an array of strings, or of numbers; else empty.
  [[nodiscard]] std::vector<std::string_view> strings() const;
  [[nodiscard]] std::vector<double> numbers() const;
};

// Sorted by key.
using Metadata = std::map<std::string, Value, std::less<>>;

struct TensorInfo {
  std::string name;                  // untrusted
  const TensorType* type = nullptr;  // never null
  // Rows first, as safetensors have it: the file's sizes reversed.
  std::vector<std::uint64_t> shape{};
  std::uint64_t begin = 0;  // from the beginning of the data
  std::uint64_t elements = 0, nbytes = 0;
};

struct Header {
  std::uint32_t version = kVersion;
  std::uint64_t alignment = kDefaultAlignment;
  std::uint64_t data_begin = 0;  // in the file
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order; begin at multiples of the alignment
};

// Fills `into` with the file's bytes from a position on; what it is asked for is in the file.
using ReadBytes = std::function<void(std::uint64_t position, std::span<std::byte> into)>;

// Throws Error(invalid_argument), or Error(unsupported) for versions and byte orders that octavo
// does not read. `file` is for messages.
[[nodiscard]] Header parse_header(const ReadBytes& read, std::uint64_t file_bytes,
                                  std::string_view file);

[[nodiscard]] std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment);

}  // namespace octavo::gguf
