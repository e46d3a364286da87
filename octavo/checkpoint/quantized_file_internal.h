// The layout of octavo's own file, piece by piece: for those who write or read it in bands.
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

// How the file holds a dense array. The view's memory is not looked at.
[[nodiscard]] safetensors::TensorPlan stored_plan(std::string name, const View& view);

// Says in a file's metadata what a tensor of it is.
void describe_in(safetensors::Metadata& metadata, const std::string& name, const Shape& shape,
                 DType source, const Scaling& scaling);

// Is a file octavo's own, of any version?
[[nodiscard]] bool describes_itself(const safetensors::FileReader& file);
// What describe_in wrote for a tensor; throws Error(invalid_argument) where it wrote nothing.
[[nodiscard]] const std::string& description_of(const safetensors::FileReader& file,
                                                const std::string& name);

struct Description {
  Shape shape{};
  DType source = DType::f32;
  Scaling scaling{};
};
// What describe_in wrote. Throws Error(invalid_argument) when it is something else.
[[nodiscard]] Description parse_description(std::string_view line);

}  // namespace octavo
