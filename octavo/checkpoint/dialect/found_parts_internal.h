// From tensors of a file to a quantized weight: what the dialects' readers share. Types and shapes
// decide what a weight is; what config.json says only chooses between what they leave open.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/module_role.h"

namespace octavo {

struct FoundParts {
  std::string name;  // of the weight, had it not been quantized
  const StoredTensor* codes = nullptr;
  const StoredTensor* scales = nullptr;        // null: the weight lacks them, which is an error
  const StoredTensor* tensor_scale = nullptr;  // null: there is none
  const StoredTensor* marker = nullptr;
  std::vector<Tile> said{};  // what config.json says of FP8 weights; tried first
  bool powers = false;       // f32 scales are powers of two
  bool divisor = false;      // the tensor scale divides
  bool high_nibble_first = false;
  bool swizzled = false;
  std::optional<Shape> shape{};  // where codes are padded; else theirs
};

// Throws Error(invalid_argument) that names the weight when its parts do not fit together, and
// Error(unsupported) for codes that are not octavo's (integers). The source type is left open.
[[nodiscard]] FoundWeight assemble(const FoundParts& parts);
// The same, behind the others; a misfit goes to its list where there is one.
void assemble_into(std::vector<FoundWeight>& found, const FoundParts& parts, Misfits* misfits);

[[nodiscard]] bool holds_fp8(const StoredTensor& tensor);
[[nodiscard]] bool holds_codes(const StoredTensor& tensor);  // FP8, or bytes

// The part of config.json that speaks of quantization; null if none does.
[[nodiscard]] const Json& quantization_config(const Json& config);
// Takes it out of every place where it could be.
void remove_quantization_config(Json& config);

// The type that weights had: what config.json says, else what most tensors beside them have.
[[nodiscard]] DType source_type(const CheckpointReader& checkpoint);

}  // namespace octavo
