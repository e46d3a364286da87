// Writes what stands before the data of a GGUF file, and places its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/gguf/gguf_header.h"
#include "octavo/safetensors/header.h"

namespace octavo::gguf {

[[nodiscard]] Value string_value(std::string_view text);
[[nodiscard]] Value count_value(std::int64_t number);  // u32
[[nodiscard]] Value f32_value(double number);
[[nodiscard]] Value boolean_value(bool value);
[[nodiscard]] Value string_array(const std::vector<std::string>& strings);
[[nodiscard]] Value i32_array(const std::vector<std::int32_t>& numbers);
[[nodiscard]] Value f32_array(const std::vector<float>& numbers);

// The bytes of metadata in a file.
[[nodiscard]] std::string metadata_bytes(const Metadata& metadata);

struct PlacedTensor {
  std::string_view type;             // "MXFP4"
  safetensors::TensorEntry entry{};  // name, type and shape as bytes are written; begin is set here
};
struct Layout {
  safetensors::Header header;  // places of all tensors, in the order given
  std::string first_bytes;     // up to the data
};
// `keys` is the number of keys of `metadata`, which has no general.alignment.
[[nodiscard]] Layout lay_out(std::string_view metadata, std::uint64_t keys,
                             std::vector<PlacedTensor> tensors);

}  // namespace octavo::gguf
