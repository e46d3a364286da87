// The INT4 of compressed-tensors ("pack-quantized", symmetric, groups along the input): eight
// numbers in an int32, the first in the lowest bits, each with 8 added. A value is number x scale,
// rounded to the scale's type, and then to the model's.
#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/decoded_weight_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/convert/convert.h"
#include "octavo/convert/widen.h"

namespace octavo {
namespace {

using safetensors::StoredType;

constexpr std::string_view kPacked = ".weight_packed";
constexpr std::int64_t kInWord = 8, kBits = 4, kAdded = 8;

// f32 to another type of values, nearest even.
Tensor rounded(const Tensor& values, DType to) {
  if (to == DType::f32) return values;
  const Format& format = to == DType::bf16 ? bf16_format : f16_format;
  return encode(values.view(), format, {}, {.threads = 1});
}

Tensor as_values(const Tensor& bits, DType type) {
  View view = bits.view();
  view.dtype = type;
  view.format = {};
  return Tensor::adopt(view, std::make_shared<Tensor>(bits));
}

class OfInt4 : public DecodedWeight {
 public:
  OfInt4(std::string module, const Shape& shape, DType source, DType scale, std::int64_t group)
      : DecodedWeight(module + ".weight", shape, source, 1),
        module_(std::move(module)),
        scale_(scale),
        group_(group) {}

  [[nodiscard]] std::vector<std::string> tensors() const override {
    return {module_ + std::string(kPacked), module_ + ".weight_scale", module_ + ".weight_shape"};
  }

 private:
  [[nodiscard]] Tensor decode_rows(const CheckpointReader& checkpoint, std::int64_t first,
                                   std::int64_t rows) const override {
    const std::int64_t cols = shape()[1], words = cols / kInWord, groups = cols / group_;
    std::vector<std::uint32_t> packed(static_cast<std::size_t>(rows * words));
    checkpoint.read(checkpoint.at(module_ + std::string(kPacked)),
                    static_cast<std::uint64_t>(first * words) * sizeof(std::uint32_t),
                    std::as_writable_bytes(std::span(packed)));
    const Tensor stored = Tensor::values({rows, groups}, scale_);
    checkpoint.read(checkpoint.at(module_ + ".weight_scale"),
                    static_cast<std::uint64_t>(first * groups * element_bytes(scale_)),
                    stored.bytes());
    const Tensor scales = widened(stored), values = Tensor::values({rows, cols}, DType::f32);
    const float* const scale = scales.span<float>().data();
    float* const value = values.span<float>().data();
    for (std::int64_t i = 0; i < rows * groups; ++i) {
      const std::uint32_t* const from = packed.data() + i * group_ / kInWord;
      float* const to = value + i * group_;
      for (std::int64_t j = 0; j < group_; ++j) {
        const auto bits = static_cast<std::int32_t>(from[j / kInWord] >> (kBits * (j % kInWord)));
        to[j] = static_cast<float>((bits & 15) - kAdded) * scale[i];
      }
    }
    Tensor out = rounded(values, scale_);
    if (scale_ != source())
      out = rounded(scale_ == DType::f32 ? out : widened(as_values(out, scale_)), source());
    return out;
  }

  std::string module_;
  DType scale_;
  std::int64_t group_;
};

DType scale_type(const StoredTensor& scales) {
  switch (scales.entry->type) {
    case StoredType::bf16:
      return DType::bf16;
    case StoredType::f16:
      return DType::f16;
    case StoredType::f32:
      return DType::f32;
    default:
      fail(ErrorCode::unsupported, kDialectOp, "'", shown(scales.name(), 200), "' is ",
           stored_name(scales.entry->type), "; expected bf16, f16 or f32");
  }
}

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

// Why what the tensors hold is not four bits with symmetric groups; "" where it is.
std::string why_other(const CheckpointReader& checkpoint, const std::string& module) {
  if (checkpoint.find(module + ".weight_zero_point") != nullptr) return "it has zero points";
  if (checkpoint.find(module + ".weight_g_idx") != nullptr) return "its groups are reordered";
  for (const auto& [name, group] :
       quantization_config(checkpoint.config())["config_groups"].members()) {
    const Json& weights = group["weights"];
    if (weights["num_bits"].integer_or(kBits) != kBits)
      return text("config.json says num_bits = ", weights["num_bits"].integer_or(0));
    if (!weights["symmetric"].boolean_or(true)) return "config.json says that it is not symmetric";
  }
  return "";
}

}  // namespace

DecodedWeights int4_weights(const CheckpointReader& checkpoint) {
  DecodedWeights out;
  const DType source = source_type(checkpoint);
  for (const StoredTensor& packed : checkpoint.tensors()) {
    if (!packed.name().ends_with(kPacked) || packed.entry->type != StoredType::i32) continue;
    const std::string module = packed.name().substr(0, packed.name().size() - kPacked.size());
    if (const std::string why = why_other(checkpoint, module); !why.empty())
      fail(ErrorCode::unsupported, kDialectOp, "'", shown(packed.name(), 200),
           "' holds integers that octavo does not read: ", why,
           "; it reads four bits in symmetric groups");
    const StoredTensor* const scales = checkpoint.find(module + ".weight_scale");
    const StoredTensor* const sizes = checkpoint.find(module + ".weight_shape");
    const std::vector<std::int64_t> shape =
        sizes == nullptr ? std::vector<std::int64_t>() : numbers_in(checkpoint, *sizes);
    const auto& words = packed.entry->shape;
    const auto is = [](const std::vector<std::uint64_t>& of, std::int64_t rows, std::int64_t cols) {
      return of.size() == 2 && of[0] == static_cast<std::uint64_t>(rows) &&
             of[1] == static_cast<std::uint64_t>(cols);
    };
    const std::int64_t groups = scales != nullptr && scales->entry->shape.size() == 2
                                    ? static_cast<std::int64_t>(scales->entry->shape[1])
                                    : 0;
    check(scales != nullptr && shape.size() == 2 && shape[0] > 0 && shape[1] > 0 && groups > 0 &&
              shape[1] % groups == 0 && shape[1] / groups % kInWord == 0 &&
              is(words, shape[0], shape[1] / kInWord) && is(scales->entry->shape, shape[0], groups),
          ErrorCode::invalid_argument, kDialectOp, "'", shown(packed.name(), 200), "' is int32 ",
          shape_text(words),
          "; expected weight_shape [out, in], int32 [out, in / 8] and weight_scale [out, groups] "
          "with groups of whole words");
    out.push_back(std::make_unique<OfInt4>(module, Shape{shape[0], shape[1]}, source,
                                           scale_type(*scales), shape[1] / groups));
  }
  return out;
}

}  // namespace octavo
