#include "octavo/checkpoint/dialect/static_scales_internal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/dialect/nvfp4_divisor_internal.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo {
namespace {

using safetensors::StoredType;

// Suffixes of activation scales in all dialects. input_global_scale is a divisor.
constexpr std::string_view kDivides = ".input_global_scale";
constexpr std::array<std::string_view, 4> kInputs{".input_scale", kDivides, ".activation_scale",
                                                  ".scale_input"};

// The value of a static scale that is written again.
float number_to_say(const CheckpointReader& source, const StoredTensor& tensor) {
  const StaticNumber number = static_number(source, tensor);
  check(number.fault == StaticFault::none, ErrorCode::invalid_argument, kDialectOp, "'",
        shown(tensor.name(), 200), "' is declared as a static scale, and ", number.reason,
        "; get the checkpoint anew, or dequantize it");
  return number.value;
}

// Does the source's config declare static activation scales? Without a config the tensors decide.
bool says_static(const CheckpointReader& source, Dialect dialect) {
  const Json& words = quantization_config(source.config());
  if (!words.is_object()) return true;
  if (dialect == Dialect::deepseek) return words["activation_scheme"].string_or("") == "static";
  if (dialect != Dialect::compressed_tensors) return true;
  const auto& groups = words["config_groups"].members();
  return std::any_of(groups.begin(), groups.end(), [](const auto& group) {
    const Json& input = group.second["input_activations"];
    return input.is_object() && !input["dynamic"].boolean_or(false);
  });
}

// "a.self_attn" of "a.self_attn.k_scale" and of "a.self_attn.k_proj.k_scale"; "" for other names.
std::string_view attention_of(std::string_view name, std::string_view letter) {
  for (const std::string& suffix :
       {std::string(".") + std::string(letter) + "_proj." + std::string(letter) + "_scale",
        std::string(".") + std::string(letter) + "_scale"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return {};
}

}  // namespace

DialectTensor static_scale_tensor(const StaticScaleNames& words, std::string name, float value) {
  DialectTensor out{.plan = {.name = std::move(name),
                             .type = StoredType::f32,
                             .shape = std::vector<std::uint64_t>(words.scalar ? 0 : 1, 1)},
                    .part = Part::marker};
  out.constant.resize(sizeof value);
  std::memcpy(out.constant.data(), &value, sizeof value);
  return out;
}

bool is_input_scale(std::string_view name) {
  return std::any_of(kInputs.begin(), kInputs.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool is_cache_scale(std::string_view name) {
  for (const std::string_view end :
       {".k_scale", ".v_scale", ".kv_scale", ".k_proj.output_scale", ".v_proj.output_scale"})
    if (name.ends_with(end)) return true;
  return false;
}

std::pair<std::string_view, std::string_view> cache_algorithm(const CheckpointReader& checkpoint) {
  constexpr std::string_view kKey = "kv_cache_quant_algo";
  const Json& words = quantization_config(checkpoint.config());
  if (const std::string_view name = words[kKey].string_or(""); !name.empty())
    return {name, "config.json"};
  return {checkpoint.hf_quant_config()["quantization"][kKey].string_or(""), "hf_quant_config.json"};
}

CacheScheme cache_scheme_of(const CheckpointReader& checkpoint) {
  const Json& words = quantization_config(checkpoint.config())["kv_cache_scheme"];
  if (words.is_object()) {
    const bool one_scale = words["strategy"].string_or("tensor") == "tensor";
    return words["num_bits"].integer_or(0) == 8 && words["type"].string_or("") == "float" &&
                   !words["dynamic"].boolean_or(false) && one_scale
               ? CacheScheme::fp8
               : CacheScheme::other;
  }
  const std::string_view algorithm = cache_algorithm(checkpoint).first;
  if (algorithm.empty()) return CacheScheme::plain;
  return algorithm == "FP8" || algorithm == "fp8" ? CacheScheme::fp8 : CacheScheme::other;
}

StaticNumber static_number(const CheckpointReader& checkpoint, const StoredTensor& tensor) {
  const StoredType type = tensor.entry->type;
  if (type != StoredType::f32 && type != StoredType::bf16 && type != StoredType::f16)
    return {.fault = StaticFault::type,
            .reason = text("it is ", stored_name(type), "; expected F32, BF16 or F16")};
  std::array<std::byte, 4> bytes{};
  const auto size = static_cast<std::uint64_t>(stored_bits(type) / 8);
  if (tensor.nbytes() != size)
    return {.fault = StaticFault::shape,
            .reason = text("its shape is ", shape_text(tensor.entry->shape),
                           "; expected one number: [] or [1]")};
  checkpoint.read(tensor, 0, std::span(bytes).first(size));
  StaticNumber out{};
  if (type == StoredType::f32) {
    std::memcpy(&out.value, bytes.data(), sizeof out.value);
  } else {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data(), sizeof half);
    out.value =
        static_cast<float>(decode(type == StoredType::bf16 ? bf16_format : f16_format, half));
  }
  if (std::isfinite(out.value) && out.value > 0) return out;
  out.fault = StaticFault::number;
  out.reason = text("it is ", out.value, "; expected a positive number");
  return out;
}

StaticScales::StaticScales(const CheckpointReader& source, const Recognized& recognized,
                           std::optional<Dialect> target) {
  if (!target) return;
  if (says_static(source, recognized.dialect)) find_inputs(source, recognized, *target);
  find_cache(source, *target);
}

const DialectTensor* StaticScales::target_tensor(const std::string& name) const {
  const auto found = target_tensors_.find(name);
  return found != target_tensors_.end() ? &found->second : nullptr;
}

void StaticScales::find_inputs(const CheckpointReader& source, const Recognized& recognized,
                               Dialect target) {
  const StaticScaleNames& words = table_of(target).statics;
  if (words.takes_input == nullptr) return;
  struct Found {
    const QuantizedWeight* weight;
    const StoredTensor* tensor;
    float value;
    bool divides;
  };
  std::vector<Found> found;
  std::set<std::optional<Scheme>> incomplete;
  for (const FoundWeight& one : recognized.weights) {
    const std::optional<Scheme> scheme = scheme_of(one.weight.scaling);
    const std::size_t before = found.size();
    for (const std::string_view suffix : kInputs) {
      const StoredTensor* const tensor = source.find(one.weight.module + std::string(suffix));
      if (tensor == nullptr || found.size() > before) continue;
      if (words.takes_input(scheme))
        found.push_back({&one.weight, tensor, number_to_say(source, *tensor), suffix == kDivides});
    }
    if (found.size() == before) incomplete.insert(scheme);
  }
  for (const auto& [weight, tensor, value, divides] : found) {
    const std::optional<Scheme> scheme = scheme_of(weight->scaling);
    if (incomplete.contains(scheme)) continue;
    const bool to_divide = scheme == Scheme::nvfp4 && !words.nvfp4_input.empty();
    const float written = to_divide == divides ? value
                          : to_divide          ? divisor_of(value, weight->source)
                                               : multiplier_of(value, weight->source);
    const std::string_view suffix = to_divide ? words.nvfp4_input : words.input;
    target_tensors_.emplace(
        tensor->name(), static_scale_tensor(words, weight->module + std::string(suffix), written));
    inputs_.insert(weight->module);
  }
}

void StaticScales::find_cache(const CheckpointReader& source, Dialect target) {
  const StaticScaleNames& words = table_of(target).statics;
  if (words.key.empty() || cache_scheme_of(source) != CacheScheme::fp8) return;
  cache_ = CacheScheme::fp8;
  for (const StoredTensor& tensor : source.tensors()) {
    const std::string_view keys = attention_of(tensor.name(), "k"),
                           values = attention_of(tensor.name(), "v");
    if (keys.empty() && values.empty()) continue;
    target_tensors_.emplace(
        tensor.name(),
        static_scale_tensor(words,
                            keys.empty() ? std::string(values) + std::string(words.value)
                                         : std::string(keys) + std::string(words.key),
                            number_to_say(source, tensor)));
  }
}

}  // namespace octavo
