// Assembles INT4 of compressed-tensors ("pack-quantized", symmetric, groups along the input):
// weight_packed (int32 of eight numbers each, the first in the lowest bits, each with 8 added),
// weight_scale [out, groups] and weight_shape.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;

constexpr std::int64_t kBits = 4;

std::vector<std::int64_t> numbers_in(const CheckpointReader& checkpoint,
                                     const StoredTensor& tensor) {
  const StoredType type = tensor.entry->type;
  const bool wide = type == StoredType::i64;
  if ((!wide && type != StoredType::i32) || tensor.nbytes() != (wide ? 16U : 8U)) return {};
  std::int64_t numbers[2] = {};
  std::int32_t narrow[2] = {};
  if (wide) {
    checkpoint.read(tensor, 0, std::as_writable_bytes(std::span(numbers)));
    return {numbers[0], numbers[1]};
  }
  checkpoint.read(tensor, 0, std::as_writable_bytes(std::span(narrow)));
  return {narrow[0], narrow[1]};
}

// Why what the tensors hold is not four bits with symmetric groups; "" where it is. Of several
// config groups one must say so: which one is the module's is not known here.
std::string why_other(const CheckpointReader& checkpoint, const FoundParts& parts,
                      const std::string& module) {
  if (parts.zero_points != nullptr) return "it has zero points";
  if (checkpoint.find(module + ".weight_g_idx") != nullptr) return "its groups are reordered";
  std::string why;
  for (const auto& [name, group] :
       quantization_config(checkpoint.config())["config_groups"].members()) {
    const Json& weights = group["weights"];
    const std::int64_t bits = weights["num_bits"].integer_or(kBits);
    if (bits == kBits && weights["symmetric"].boolean_or(true)) return "";
    why = bits != kBits ? text("config.json says num_bits = ", bits)
                        : std::string("config.json says that it is not symmetric");
  }
  return why;
}

bool is(const std::vector<std::uint64_t>& shape, std::int64_t rows, std::int64_t cols) {
  return shape.size() == 2 && shape[0] == static_cast<std::uint64_t>(rows) &&
         shape[1] == static_cast<std::uint64_t>(cols);
}

FoundWeight assemble_int4(const CheckpointReader& checkpoint, const FoundParts& parts) {
  const std::string module(module_of(parts.name));
  const StoredTensor& codes = *parts.codes;
  if (const std::string why = why_other(checkpoint, parts, module); !why.empty())
    fail(ErrorCode::unsupported, kDialectOp, "'", shown(codes.name(), 200),
         "' holds integers that octavo does not read: ", why,
         "; it reads four bits in symmetric groups");
  const StoredTensor* const sizes = checkpoint.find(module + ".weight_shape");
  const std::vector<std::int64_t> shape =
      sizes == nullptr ? std::vector<std::int64_t>() : numbers_in(checkpoint, *sizes);
  const StoredTensor* const scales = parts.scales;
  const std::int64_t groups = scales != nullptr && scales->entry->shape.size() == 2
                                  ? static_cast<std::int64_t>(scales->entry->shape[1])
                                  : 0;
  check(shape.size() == 2 && shape[0] > 0 && shape[1] > 0 && groups > 0 && shape[1] % groups == 0 &&
            shape[1] / groups % kInt4InWord == 0 &&
            is(codes.entry->shape, shape[0], shape[1] / kInt4InWord) &&
            is(scales->entry->shape, shape[0], groups),
        ErrorCode::invalid_argument, kDialectOp, "'", shown(codes.name(), 200), "' is int32 ",
        shape_text(codes.entry->shape),
        "; expected weight_shape [out, in], int32 [out, in / 8] and weight_scale [out, groups] "
        "with groups of whole words");
  const std::optional<ScaleFormat> scale = scale_format_of(scales->entry->type);
  const bool floats =
      scale == ScaleFormat::f32 || scale == ScaleFormat::bf16 || scale == ScaleFormat::f16;
  if (!floats)
    fail(ErrorCode::unsupported, kDialectOp, "'", shown(scales->name(), 200), "' is ",
         stored_name(scales->entry->type), "; expected bf16, f16 or f32");

  FoundWeight found;
  found.weight.name = parts.name;
  found.weight.module = module;
  found.weight.shape = Shape{shape[0], shape[1]};
  found.weight.scaling = preset("int4");
  found.weight.scaling.tile = {1, shape[1] / groups};
  found.weight.scaling.scale.format = *scale;
  const auto add = [&](const StoredTensor& tensor, Part part) {
    const safetensors::TensorEntry& entry = *tensor.entry;
    found.tensors.push_back({.plan = {entry.name, entry.type, entry.shape}, .part = part});
  };
  add(codes, Part::codes);
  found.tensors.back().plus_eight = true;
  add(*scales, Part::scales);
  add(*sizes, Part::marker);
  return found;
}

}  // namespace

void assemble_int4_into(std::vector<FoundWeight>& found, const CheckpointReader& checkpoint,
                        const FoundParts& parts, Misfits* misfits) {
  collect_into(found, parts.name, misfits, [&] { return assemble_int4(checkpoint, parts); });
}

}  // namespace octavo
