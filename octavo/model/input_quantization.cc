#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/model/input_quantization_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "model";

InputQuantization dynamic(std::string_view name) { return {.scaling = preset(name)}; }

// By the scheme of the weight, where the dialect declares nothing else.
InputQuantization by_scheme(const QuantizedWeight& weight) {
  const std::optional<Scheme> scheme = scheme_of(weight.scaling);
  if (!scheme) return {};
  switch (*scheme) {
    case Scheme::fp8_tensor:
    case Scheme::fp8_channel:
      return dynamic("fp8-channel");  // a scale per token
    case Scheme::fp8_block:
      return dynamic("fp8-1x128");
    case Scheme::mxfp8:
      return dynamic("mxfp8");
    case Scheme::int8_channel:
      return dynamic("int8-channel");
    default:
      return {};
  }
}

}  // namespace

InputQuantizations::InputQuantizations(const CheckpointReader& checkpoint,
                                       const Recognized& recognized)
    : checkpoint_(checkpoint),
      dialect_(recognized.dialect),
      words_(quantization_config(checkpoint.config())),
      groups_(words_) {}

InputQuantization InputQuantizations::with_static_scale(const std::string& module,
                                                        InputQuantization input) const {
  if (!input.scaling) return input;
  for (const std::string_view end : {".input_scale", ".input_global_scale"}) {
    const StoredTensor* const found = checkpoint_.find(module + std::string(end));
    if (found == nullptr) continue;
    const StaticNumber number = static_number(checkpoint_, *found);
    check(number.fault == StaticFault::none, ErrorCode::invalid_argument, kOp, "'",
          shown(found->name(), 200), "': ", number.reason, "; get the checkpoint anew");
    const bool divides = end == ".input_global_scale";
    input.static_scale = divides ? 1.0F / number.value : number.value;
    return input;
  }
  return input;
}

// A group of compressed-tensors' config.
InputQuantization InputQuantizations::declared(const QuantizedWeight& weight) const {
  const Json& group = groups_.of(weight.module);
  if (!group.is_object()) return by_scheme(weight);
  const Json& input = group["input_activations"];
  if (!input.is_object()) return {};
  const std::string_view type = input["type"].string_or("float"),
                         strategy = input["strategy"].string_or("tensor");
  const std::int64_t bits = input["num_bits"].integer_or(8),
                     size = input["group_size"].integer_or(0);
  const bool is_static = !input["dynamic"].is_string() && !input["dynamic"].boolean_or(false);
  if (type == "float" && bits == 8) {
    if (strategy == "tensor")
      return is_static ? with_static_scale(weight.module, dynamic("fp8")) : dynamic("fp8");
    if (strategy == "token") return dynamic("fp8-channel");
    if (strategy == "group" && size == 128) return dynamic("fp8-1x128");
    if (strategy == "group" && size == 32) return dynamic("mxfp8");
  }
  if (type == "int" && bits == 8 && strategy == "token") return dynamic("int8-channel");
  if (type == "float" && bits == 4) {
    if (size == 16) return with_static_scale(weight.module, dynamic("nvfp4"));
    if (size == 32) return dynamic("mxfp4");
  }
  fail(ErrorCode::unsupported, kOp, "the inputs of '", shown(weight.module, 200),
       "' are declared as ", bits, " bits of type '", shown(type), "', strategy '", shown(strategy),
       "', which octavo does not compute with; dequantize the checkpoint");
}

InputQuantization InputQuantizations::usual(const QuantizedWeight& weight) const {
  switch (dialect_) {
    case Dialect::deepseek:
      if (words_["activation_scheme"].string_or("dynamic") == "static")
        return with_static_scale(weight.module, dynamic("fp8"));
      return by_scheme(weight);
    case Dialect::modelopt: {
      const std::string algorithm = modelopt_algorithm(words_, weight.module);
      if (algorithm == "NVFP4") return with_static_scale(weight.module, dynamic("nvfp4"));
      const std::optional<Scheme> scheme = scheme_of(weight.scaling);
      if (scheme == Scheme::fp8_tensor) return with_static_scale(weight.module, dynamic("fp8"));
      return by_scheme(weight);
    }
    case Dialect::comfyui: {
      const InputQuantization input = with_static_scale(weight.module, by_scheme(weight));
      return input.static_scale > 0.0F
                 ? InputQuantization{.scaling = preset("fp8"), .static_scale = input.static_scale}
                 : InputQuantization{};
    }
    default:
      return {};
  }
}

InputQuantization InputQuantizations::of(const FoundWeight& found) const {
  if (dialect_ == Dialect::compressed_tensors) return declared(found.weight);
  return usual(found.weight);
}

}  // namespace octavo
