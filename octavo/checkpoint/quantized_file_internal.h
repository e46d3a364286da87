// The layout of octavo's own file, for code that writes or reads it in row blocks.
#pragma once

#include <string>
#include <string_view>

#include "octavo/quant/scaling.h"
#include "octavo/safetensors/file_reader.h"
#include "octavo/safetensors/header_writer.h"
#include "octavo/tensor/view.h"

namespace octavo {

// The names of a tensor's parts; the codes have the tensor's own.
[[nodiscard]] std::string scales_name(std::string_view name);
[[nodiscard]] std::string tensor_scale_name(std::string_view name);

// The stored type and shape of a dense array. Does not read the view's memory.
[[nodiscard]] safetensors::TensorPlan stored_plan(std::string name, const View& view);

// Adds the description of a tensor to the file's metadata.
void describe_in(safetensors::Metadata& metadata, const std::string& name, const Shape& shape,
                 DType source, const Scaling& scaling);

// True if the file has octavo's metadata, of any version.
[[nodiscard]] bool describes_itself(const safetensors::FileReader& file);
// The metadata line of a tensor; throws Error(invalid_argument) where there is none.
[[nodiscard]] const std::string& description_of(const safetensors::FileReader& file,
                                                const std::string& name);

struct Description {
  Shape shape{};
  DType source = DType::f32;
  Scaling scaling{};
};
// Parses a line written by describe_in. Throws Error(invalid_argument) when it is malformed.
[[nodiscard]] Description parse_description(std::string_view line);

}  // namespace octavo
