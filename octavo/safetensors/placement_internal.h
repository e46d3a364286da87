// Checked arithmetic of tensor sizes and data_offsets, shared by reader and writer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "octavo/safetensors/header.h"

namespace octavo::safetensors {

inline constexpr std::string_view kOp = "safetensors";            // prefix of every message
inline constexpr std::string_view kMetadataKey = "__metadata__";  // reserved, not a tensor

// A file's or tensor's name escaped for a message; both are untrusted.
[[nodiscard]] std::string shown_file(std::string_view file);
[[nodiscard]] std::string shown_tensor(std::string_view name);
[[nodiscard]] std::string shown_shape(std::span<const std::uint64_t> shape);

// Bytes of a tensor; throws Error when they overflow or end inside a byte.
[[nodiscard]] std::uint64_t checked_bytes(const TensorEntry& tensor, std::string_view file);

// Sorts the tensors into file order and builds the index by name; throws Error unless they fill
// data_bytes exactly.
void check_placement(Header& header, std::string_view file);

}  // namespace octavo::safetensors
