// The modelopt dialect: NVIDIA ModelOpt's export, read by TensorRT-LLM, vLLM and SGLang, not by
// transformers. All scales multiply. The scheme is declared twice: in config.json, and in
// hf_quant_config.json for older servers.
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;

constexpr std::string_view kName = "modelopt";
// The ModelOpt version with this layout; servers that check the version treat the files like
// ModelOpt's own.
constexpr std::string_view kLayoutVersion = "0.47.0";

struct QuantAlgo {
  std::string_view algorithm;
  int group_size = 0;
  int bits = 0;  // num_bits of config_groups; 0: none written
};
// NVFP4 has two quant_algo names, with and without quantized activations.
QuantAlgo quant_algo_of(Scheme scheme, bool static_input = false) {
  switch (scheme) {
    case Scheme::fp8_tensor:
      return {"FP8", 0, 8};
    case Scheme::fp8_channel:
      return {"FP8_PER_CHANNEL_PER_TOKEN"};
    case Scheme::fp8_block:
      return {"fp8_pb_wo"};
    case Scheme::mxfp8:
      return {"MXFP8", 32};
    case Scheme::nvfp4:
      return {static_input ? "NVFP4" : "W4A16_NVFP4", 16, 4};
    case Scheme::mxfp6:
    case Scheme::mxfp4:
    case Scheme::int8_channel:
    case Scheme::int4_group:
      break;
  }
  return {};
}

std::string why_not(const QuantizedWeight& weight) {
  const auto scheme = scheme_of(weight.scaling);
  if (!scheme || quant_algo_of(*scheme).algorithm.empty() || weight.scaling.format == e5m2)
    return unsupported_scaling(kName, weight.scaling,
                               "fp8, fp8-channel, fp8-block, mxfp8 (e4m3fn), nvfp4");
  if (const std::string reason = why_no_matrix(weight); !reason.empty()) return reason;
  const Extent extent = extent_of(weight);
  if (*scheme == Scheme::fp8_block && extent.rows % kBlock != 0)
    return not_divisible(kName, "rows", extent.rows, kBlock);
  const std::int64_t group =
      *scheme == Scheme::fp8_block ? kBlock : quant_algo_of(*scheme).group_size;
  if (group > 0 && extent.cols % group != 0)
    return not_divisible(kName, "columns", extent.cols, group);
  return "";
}

std::vector<DialectTensor> dialect_tensors(const QuantizedWeight& weight) {
  const Scheme scheme = *scheme_of(weight.scaling);
  const auto [rows, cols, matrix_rows] = extent_of(weight);
  const std::string codes = weight.module + ".weight", scales = weight.module + ".weight_scale";
  const DialectTensor plain{.plan =
                                plan_tensor(codes, byte_code_type(weight.scaling), {rows, cols})};
  const auto scale = [&](StoredType type, std::initializer_list<std::int64_t> shape) {
    return DialectTensor{.plan = plan_tensor(scales, type, shape), .part = Part::scales};
  };
  switch (scheme) {
    case Scheme::fp8_tensor:
      return {plain, scale(StoredType::f32, {})};
    case Scheme::fp8_channel:
      return {plain, scale(StoredType::f32, {rows})};
    case Scheme::fp8_block:
      return {plain, scale(StoredType::f32, {rows / kBlock, 1, cols / kBlock, 1})};
    case Scheme::mxfp8:
      return {plain, scale(StoredType::u8, {rows, cols / 32})};
    case Scheme::nvfp4:
    case Scheme::mxfp6:
    case Scheme::mxfp4:
    case Scheme::int8_channel:
    case Scheme::int4_group:
      break;
  }
  return {{.plan = plan_tensor(codes, StoredType::u8, {rows, cols / 2})},
          scale(StoredType::f8_e4m3, {rows, cols / 16}),
          {.plan = plan_tensor(weight.module + ".weight_scale_2", StoredType::f32, {}),
           .part = Part::tensor_scale}};
}

Json layers_of(const QuantizedModel& model) {
  Json layers = Json::object();
  for (const QuantizedWeight& weight : model.weights) {
    const QuantAlgo words = quant_algo_of(*scheme_of(weight.scaling), weight.static_input);
    Json layer = Json::object({{"quant_algo", words.algorithm}});
    if (words.group_size > 0) layer.set("group_size", words.group_size);
    layers.set(weight.module, std::move(layer));
  }
  return layers;
}

void configure(const QuantizedModel& model, Json& config, Json& hf_quant_config) {
  const std::vector<Scheme> schemes = schemes_of(model);
  const bool mixed = schemes.size() > 1;
  const bool static_input = has_static_input(model, schemes[0]);
  const QuantAlgo words =
      mixed ? QuantAlgo{"MIXED_PRECISION"} : quant_algo_of(schemes[0], static_input);
  const Json skipped = json_list(ignore_list(model));
  const Json producer = Json::object({{"name", kName}, {"version", kLayoutVersion}});

  Json flat = Json::object();
  if (words.bits > 0) {
    Json weights = Json::object({{"dynamic", false}, {"num_bits", words.bits}, {"type", "float"}});
    if (words.group_size > 0) weights.set("group_size", words.group_size);
    Json group = Json::object();
    if (static_input) group.set("input_activations", weights);
    group.set("weights", std::move(weights));
    group.set("targets", Json::array({"Linear"}));
    flat.set("config_groups", Json::object({{"group_0", std::move(group)}}));
  }
  flat.set("ignore", skipped);
  flat.set("quant_algo", words.algorithm);
  if (words.group_size > 0) flat.set("group_size", words.group_size);
  if (mixed) flat.set("quantized_layers", layers_of(model));
  const bool fp8_cache = model.cache == CacheScheme::fp8;
  if (fp8_cache)
    flat.set("kv_cache_scheme",
             Json::object({{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}));
  flat.set("producer", producer);
  flat.set("quant_method", kName);
  config.set("quantization_config", std::move(flat));

  Json quantization = Json::object(
      {{"quant_algo", words.algorithm}, {"kv_cache_quant_algo", fp8_cache ? Json("FP8") : Json()}});
  if (words.group_size > 0) quantization.set("group_size", words.group_size);
  quantization.set("exclude_modules", skipped);
  if (mixed) quantization.set("quantized_layers", layers_of(model));
  hf_quant_config =
      Json::object({{"producer", producer}, {"quantization", std::move(quantization)}});
}

// The tile of a layer, from the quant_algo that either file declares for it or for the model.
std::vector<Tile> tiles_for(const std::string& module, const CheckpointReader& checkpoint) {
  for (const Json* const words :
       {&quantization_config(checkpoint.config()), &checkpoint.hf_quant_config()["quantization"]}) {
    const std::string name = modelopt_algorithm(*words, module);
    if (name == "FP8") return {{0, 0}};
    if (name == "FP8_PER_CHANNEL_PER_TOKEN") return {{1, 0}};
    if (name == "FP8_PB_WO") return {{kBlock, kBlock}};
  }
  return {};
}

bool takes_input(std::optional<Scheme> scheme) {
  return scheme == Scheme::fp8_tensor || scheme == Scheme::nvfp4;
}

std::vector<FoundWeight> find(const CheckpointReader& checkpoint, Misfits* misfits) {
  std::vector<FoundWeight> found;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::string& name = tensor.name();
    if (!name.ends_with(".weight")) continue;
    const FoundParts parts{.name = name,
                           .codes = &tensor,
                           .scales = checkpoint.find(name + "_scale"),
                           .tensor_scale = checkpoint.find(name + "_scale_2"),
                           .declared = tiles_for(std::string(module_of(name)), checkpoint)};
    if (parts.scales != nullptr || holds_fp8(tensor)) assemble_into(found, parts, misfits);
  }
  return found;
}

}  // namespace

std::string modelopt_algorithm(const Json& words, const std::string& module) {
  const Json& layer = words["quantized_layers"][module];
  std::string name((layer.is_object() ? layer : words)["quant_algo"].string_or(""));
  for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

const DialectTable& modelopt_dialect() {
  static constexpr DialectTable kTable{
      kName,
      why_not,
      dialect_tensors,
      configure,
      find,
      false,
      {takes_input, ".input_scale", "", ".k_proj.k_scale", ".v_proj.v_scale"}};
  return kTable;
}

}  // namespace octavo
