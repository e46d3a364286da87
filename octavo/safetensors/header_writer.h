// Places tensors in a safetensors file and writes its header. The same tensors give the same bytes,
// in whatever order they are declared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/safetensors/header.h"

namespace octavo::safetensors {

struct TensorPlan {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::uint64_t> shape;
};

// Assigns data_offsets to every tensor: larger element types first, so that each is aligned to its
// own size; within a type by name. This is also the Rust writer's order. Throws
// Error(invalid_argument) when a name is duplicate, is "__metadata__" or is not UTF-8, when sizes
// overflow, or when the header would exceed the readers' limit. `file` is for messages.
OCTAVO_API Header place_tensors(std::vector<TensorPlan> plans, Metadata metadata,
                                std::string_view file);

// The file's bytes before the data: length and JSON, padded with spaces to a multiple of 8.
OCTAVO_API std::string write_header(const Header& header);

}  // namespace octavo::safetensors
