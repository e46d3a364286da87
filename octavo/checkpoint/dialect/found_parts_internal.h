// Assembles a quantized weight from the tensors of a file; shared by the dialects' readers. Types
// and shapes determine the scheme; config.json only chooses among what they leave open.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/module_role.h"

namespace octavo {

struct FoundParts {
  std::string name;  // of the weight in the unquantized model
  const StoredTensor* codes = nullptr;
  const StoredTensor* scales = nullptr;        // null: missing, which is an error
  const StoredTensor* tensor_scale = nullptr;  // null: the scheme has none
  const StoredTensor* zero_points = nullptr;   // asymmetric codes, which octavo does not read
  const StoredTensor* marker = nullptr;
  std::vector<Tile>
      declared{};        // tiles of FP8 and INT8 weights that config.json declares; tried first
  bool powers = false;   // f32 scales are powers of two
  bool divisor = false;  // the tensor scale is a divisor
  bool high_nibble_first = false;
  bool swizzled = false;
  std::optional<Shape> shape{};  // where codes are padded; else the shape of the codes
};

// Throws Error(invalid_argument) that names the weight when its parts do not fit together, and
// Error(unsupported) for codes that octavo does not read (integers). Does not set the source dtype.
[[nodiscard]] FoundWeight assemble(const FoundParts& parts);
// Appends the weight to `found`; a misfit goes to the list of misfits where there is one.
void collect_into(std::vector<FoundWeight>& found, const std::string& name, Misfits* misfits,
                  const std::function<FoundWeight()>& make);
void assemble_into(std::vector<FoundWeight>& found, const FoundParts& parts, Misfits* misfits);

// INT4 of compressed-tensors ("pack-quantized"): codes are int32 of eight numbers each, a
// weight_shape is beside them. Throws Error(unsupported) for zero points, reordered groups (g_idx)
// and other widths than four bits, else as assemble().
inline constexpr std::int64_t kInt4InWord = 8;
void assemble_int4_into(std::vector<FoundWeight>& found, const CheckpointReader& checkpoint,
                        const FoundParts& parts, Misfits* misfits);
// The format of scales of this type; nullopt: scales are of no such type.
[[nodiscard]] std::optional<ScaleFormat> scale_format_of(safetensors::StoredType type);

[[nodiscard]] bool holds_fp8(const StoredTensor& tensor);
[[nodiscard]] bool holds_codes(const StoredTensor& tensor);  // FP8, or bytes

// quantization_config (or compression_config) of config.json; null if there is none.
[[nodiscard]] const Json& quantization_config(const Json& config);
// Removes it from every place where it can stand.
void remove_quantization_config(Json& config);

// The dtype of the unquantized weights: dtype of config.json, else that of most unquantized
// tensors.
[[nodiscard]] DType source_type(const CheckpointReader& checkpoint);

}  // namespace octavo
