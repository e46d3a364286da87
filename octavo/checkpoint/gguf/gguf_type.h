// The tensor types of GGUF files: blocks of elements that share scales, and their sizes.
// docs/numerics/gguf.md has the layout of each block.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "octavo/safetensors/stored_type.h"

namespace octavo::gguf {

struct TensorType {
  std::uint32_t number = 0;               // in the file
  std::string_view name;                  // "Q4_K"
  std::uint32_t elements = 1, bytes = 0;  // of one block
  // What read() gives: the file's own bytes for types of one element, f32 for blocks.
  safetensors::StoredType read_as = safetensors::StoredType::f32;
  bool decoded = true;  // false: octavo knows its size and not its values

  [[nodiscard]] bool is_block() const { return elements > 1; }
};

// null for numbers that no type has.
[[nodiscard]] const TensorType* find_type(std::uint32_t number);
[[nodiscard]] const TensorType& type_named(std::string_view name);  // of the table, or an assertion
[[nodiscard]] std::span<const TensorType> all_types();

}  // namespace octavo::gguf
