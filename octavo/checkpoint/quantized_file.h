// save_quantized / load_quantized: quantized tensors in a safetensors file, lossless. For a tensor
// NAME the file has
//   NAME                        the codes, in the file format's own type where it has one, else U8
//   NAME.scales                 the grid of scales
//   NAME.tensor_scale           one F32, where scales are e4m3
//   NAME.columnwise, NAME.columnwise.scales, NAME.columnwise.tensor_scale
// and in the metadata "octavo.version" = "1" and "octavo.tensor.NAME" = shape, source dtype and the
// Scaling as text. docs/numerics/layout.md documents the bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/safetensors/file_reader.h"

namespace octavo {

using QuantizedTensors = std::map<std::string, QuantizedTensor, std::less<>>;

// Writes atomically (temporary file, then rename). Throws Error(invalid_argument) when two tensors
// would share a name in the file.
OCTAVO_API void save_quantized(const std::string& path, const QuantizedTensors& tensors);

// Every tensor that the metadata describe. Throws Error when the file is not octavo's, has an
// unknown version, or its parts do not fit together.
[[nodiscard]] OCTAVO_API QuantizedTensors load_quantized(const std::string& path);

// One tensor, and the list of names, without reading the others.
[[nodiscard]] OCTAVO_API QuantizedTensor load_quantized(const safetensors::FileReader& file,
                                                        const std::string& name);
[[nodiscard]] OCTAVO_API std::vector<std::string> quantized_names(
    const safetensors::FileReader& file);

}  // namespace octavo
