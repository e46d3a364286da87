// From the tensors a file shall hold to its header. The same tensors give the same bytes, in
// whatever order they are named.
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

// Gives every tensor its place: larger element types first, so that each is aligned to its own
// size; within a type by name. This is the Rust writer's order too. Throws Error(invalid_argument)
// when a name comes twice, is "__metadata__" or is not UTF-8, when sizes overflow, or when the
// header would be longer than readers take. `file` is for messages.
OCTAVO_API Header place_tensors(std::vector<TensorPlan> plans, Metadata metadata,
                                std::string_view file);

// The file's bytes up to its data: length and JSON, padded with spaces to a multiple of 8.
OCTAVO_API std::string write_header(const Header& header);

}  // namespace octavo::safetensors
