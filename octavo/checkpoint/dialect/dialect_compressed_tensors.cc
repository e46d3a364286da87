// The compressed-tensors dialect, which llm-compressor writes and vLLM, SGLang, TensorRT-LLM and
// transformers read. Scales multiply; weight_global_scale of NVFP4 is a divisor. Activations of
// FP8, INT8 and MXFP8 are quantized dynamically by the server, those of FP4 stay in 16 bits (A16):
// static activation scales would need calibration data that a checkpoint does not have. A source
// that came with input scales keeps them.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <set>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;

constexpr std::string_view kName = "compressed-tensors";

// QuantizationArgs of a scheme, as config.json has them.
struct QuantizationArgs {
  std::string_view format;
  int bits;
  std::string_view strategy;
  int group_size;  // 0: none
  std::string_view scale_dtype;
  std::string_view activations;  // activation strategy; empty: not quantized
  int activation_group;
  std::string_view type = "float";
};
QuantizationArgs quantization_args(Scheme scheme) {
  constexpr std::string_view kFloat = "float-quantized", kByte = "torch.uint8";
  switch (scheme) {
    case Scheme::fp8_tensor:
      return {kFloat, 8, "tensor", 0, "", "token", 0};
    case Scheme::fp8_channel:
      return {kFloat, 8, "channel", 0, "", "token", 0};
    case Scheme::fp8_block:
      return {kFloat, 8, "block", 0, "", "group", 128};
    case Scheme::mxfp8:
      return {"mxfp8-quantized", 8, "group", 32, kByte, "group", 32};
    case Scheme::mxfp6:
      return {"mxfp6-pack-quantized", 6, "group", 32, kByte, "", 0};
    case Scheme::mxfp4:
      return {"mxfp4-pack-quantized", 4, "group", 32, kByte, "", 0};
    case Scheme::int8_channel:
      return {"int-quantized", 8, "channel", 0, "", "token", 0, "int"};
    case Scheme::int4_group:  // the size of a group is the weight's
      return {"pack-quantized", 4, "group", 0, "", "", 0, "int"};
    case Scheme::nvfp4:
      break;
  }
  return {"nvfp4-pack-quantized", 4, "tensor_group", 16, "torch.float8_e4m3fn", "", 0};
}

std::string why_not(const QuantizedWeight& weight) {
  const auto scheme = scheme_of(weight.scaling);
  if (!scheme || weight.scaling.format == e5m2)
    return unsupported_scaling(
        kName, weight.scaling,
        "fp8, fp8-channel, fp8-block, mxfp8 (e4m3fn), mxfp6 (e2m3fn), mxfp4, nvfp4, int8-channel, "
        "int4 (groups of 32, 64 or 128)");
  if (const std::string reason = why_no_matrix(weight); !reason.empty()) return reason;
  const Extent extent = extent_of(weight);
  const QuantizationArgs args = quantization_args(*scheme);
  if (*scheme == Scheme::fp8_block) return why_no_blocks(kName, weight);
  const std::int64_t group =
      *scheme == Scheme::int4_group ? weight.scaling.tile.cols : args.group_size;
  if (group > 0 && extent.cols % group != 0)
    return not_divisible(kName, "columns", extent.cols, group);
  return "";
}

StoredType float_type(ScaleFormat format) {
  return format == ScaleFormat::bf16 ? StoredType::bf16 : StoredType::f32;
}

// Eight numbers in an int32, the first in its lowest bits: in memory two in a byte, the low nibble
// first, as octavo has them. weight_shape is [N, K].
std::vector<DialectTensor> int4_tensors(const QuantizedWeight& weight, DialectTensor scales) {
  const Extent extent = extent_of(weight);
  const std::array<std::int64_t, 2> shape{extent.rows, extent.cols};
  std::string bytes(sizeof shape, '\0');
  std::memcpy(bytes.data(), shape.data(), bytes.size());
  return {{.plan = plan_tensor(weight.module + ".weight_packed", StoredType::i32,
                               {extent.rows, extent.cols / kInt4InWord}),
           .plus_eight = true},
          std::move(scales),
          {.plan = plan_tensor(weight.module + ".weight_shape", StoredType::i64, {2}),
           .part = Part::marker,
           .constant = std::move(bytes)}};
}

std::vector<DialectTensor> dialect_tensors(const QuantizedWeight& weight) {
  const Scheme scheme = *scheme_of(weight.scaling);
  const auto [rows, cols, matrix_rows] = extent_of(weight);
  const std::string codes = weight.module + ".weight", scales = weight.module + ".weight_scale";
  const StoredType float_scale = float_type(weight.scaling.scale.format);
  const auto packed = [&](int bits) {
    return DialectTensor{
        .plan = plan_tensor(codes + "_packed", StoredType::u8, {rows, cols * bits / 8})};
  };
  const DialectTensor plain{.plan =
                                plan_tensor(codes, byte_code_type(weight.scaling), {rows, cols})};
  const auto scale = [&](StoredType type, std::initializer_list<std::int64_t> shape) {
    return DialectTensor{.plan = plan_tensor(scales, type, shape), .part = Part::scales};
  };
  switch (scheme) {
    case Scheme::fp8_tensor:
      return {plain, scale(float_scale, {1})};
    case Scheme::fp8_channel:
    case Scheme::int8_channel:
      return {plain, scale(float_scale, {rows, 1})};
    case Scheme::fp8_block:
      return {plain, scale(float_scale, {(rows + kBlock - 1) / kBlock, cols / kBlock})};
    case Scheme::mxfp8:
      return {plain, scale(StoredType::u8, {rows, cols / 32})};
    case Scheme::mxfp6:
      return {packed(6), scale(StoredType::u8, {rows, cols / 32})};
    case Scheme::mxfp4:
      return {packed(4), scale(StoredType::u8, {rows, cols / 32})};
    case Scheme::int4_group:
      return int4_tensors(weight, scale(float_type(weight.scaling.scale.format),
                                        {rows, cols / weight.scaling.tile.cols}));
    case Scheme::nvfp4:
      break;
  }
  return {packed(4),
          scale(StoredType::f8_e4m3, {rows, cols / 16}),
          {.plan = plan_tensor(weight.module + ".weight_global_scale", StoredType::f32, {1}),
           .part = Part::tensor_scale,
           .divisor = true}};
}

Json arguments(int bits, std::string_view strategy, int group, std::string_view scale_dtype,
               const Json& dynamic, std::string_view type = "float") {
  Json out = Json::object({{"num_bits", bits},
                           {"type", type},
                           {"symmetric", true},
                           {"strategy", strategy},
                           {"dynamic", dynamic}});
  if (group > 0) out.set("group_size", group);
  if (strategy == "block") out.set("block_structure", Json::array({kBlock, kBlock}));
  if (!scale_dtype.empty()) out.set("scale_dtype", scale_dtype);
  return out;
}

// For NVFP4 only the global scale is static; group scales are dynamic (dynamic: "local").
Json static_activations(Scheme scheme) {
  const QuantizationArgs args = quantization_args(scheme);
  if (scheme == Scheme::nvfp4)
    return arguments(args.bits, args.strategy, args.group_size, args.scale_dtype, "local");
  return arguments(args.bits, "tensor", 0, "", false, args.type);
}

Json dynamic_activations(Scheme scheme) {
  const QuantizationArgs args = quantization_args(scheme);
  if (args.activations.empty()) return {};
  return arguments(args.bits, args.activations, args.activation_group, args.scale_dtype, true,
                   args.type);
}

Json group_of(const SchemeUse& use, bool has_static_input, Json targets) {
  const Scheme scheme = use.scheme;
  QuantizationArgs args = quantization_args(scheme);
  if (use.group > 0) args.group_size = static_cast<int>(use.group);
  return Json::object({{"targets", std::move(targets)},
                       {"format", args.format},
                       {"weights", arguments(args.bits, args.strategy, args.group_size,
                                             args.scale_dtype, false, args.type)},
                       {"input_activations", has_static_input ? static_activations(scheme)
                                                              : dynamic_activations(scheme)},
                       {"output_activations", Json()}});
}

// The `ignore` list. vLLM matches the experts of a stack by the names of per-expert matrices, of
// which there may be hundreds, so one expression covers them.
Json ignored(const QuantizedModel& model) {
  Json list = json_list(ignore_list(model));
  const std::set<std::string> holders(model.plain_holders.begin(), model.plain_holders.end());
  for (const std::string& holder : holders) {
    std::string expression = "re:";
    for (const char c : holder) {
      const bool is_ascii = static_cast<unsigned char>(c) < 128;
      if (is_ascii && std::ispunct(c) != 0 && c != '_' && c != '-') expression += '\\';
      expression += c;
    }
    list.push(expression + "\\..*");
  }
  return list;
}

void configure(const QuantizedModel& model, Json& config, Json&) {
  const std::vector<SchemeUse> uses = uses_of(model);
  Json groups = Json::object();
  for (std::size_t i = 0; i < uses.size(); ++i) {
    // Targets by class where there is one scheme (TensorRT-LLM supports nothing else), by full
    // names where there are several.
    Json targets = Json::array();
    if (uses.size() == 1) targets.push("Linear");
    for (const QuantizedWeight& weight : model.weights) {
      // lm_head is a class of its own in vLLM and SGLang, which "Linear" does not match.
      const bool is_head = weight.module == "lm_head" || weight.module.ends_with(".lm_head");
      if ((uses.size() > 1 || is_head) && use_of(weight.scaling) == uses[i])
        targets.push(weight.module);
    }
    groups.set(text("group_", i),
               group_of(uses[i], has_static_input(model, uses[i].scheme), std::move(targets)));
  }
  Json cache;
  if (model.cache == CacheScheme::fp8) cache = arguments(8, "tensor", 0, "", false);
  config.set("quantization_config",
             Json::object({{"quant_method", kName},
                           {"format", schemes_of(model).size() == 1
                                          ? quantization_args(uses[0].scheme).format
                                          : std::string_view("mixed-precision")},
                           {"quantization_status", "compressed"},
                           {"global_compression_ratio", Json()},
                           {"kv_cache_scheme", std::move(cache)},
                           {"ignore", ignored(model)},
                           {"config_groups", std::move(groups)}}));
}

// The tiles that config.json declares: first those of the config group that matches the module,
// then the others.
std::vector<Tile> tiles_for(const std::string& module, const Json& config) {
  std::vector<Tile> named, others;
  for (const auto& [name, group] : config["config_groups"].members()) {
    const Json& weights = group["weights"];
    const std::string_view strategy = weights["strategy"].string_or("");
    Tile tile{0, 0};
    if (strategy == "channel") tile = {1, 0};
    if (strategy == "group") tile = {1, weights["group_size"].integer_or(0)};
    const auto& block = weights["block_structure"].elements();
    if (strategy == "block" && block.size() == 2)
      tile = {block[0].integer_or(kBlock), block[1].integer_or(kBlock)};
    const auto& targets = group["targets"].elements();
    const bool names = std::any_of(targets.begin(), targets.end(), [&](const Json& target) {
      return target.string_or("") == module;
    });
    (names ? named : others).push_back(tile);
  }
  named.insert(named.end(), others.begin(), others.end());
  return named;
}

// Static activation scales are per tensor; schemes with block or group scales have none.
bool takes_input(std::optional<Scheme> scheme) {
  return scheme == Scheme::fp8_tensor || scheme == Scheme::fp8_channel ||
         scheme == Scheme::int8_channel || scheme == Scheme::nvfp4;
}

std::vector<FoundWeight> find(const CheckpointReader& checkpoint, Misfits* misfits) {
  const Json& config = quantization_config(checkpoint.config());
  // verify reports it by a rule of its own and checks the rest.
  if (const std::string reason = unsupported_transform(config);
      misfits == nullptr && !reason.empty())
    fail(ErrorCode::unsupported, kDialectOp, "'", shown(checkpoint.path(), 200), "': ", reason);
  std::vector<FoundWeight> found;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::string& name = tensor.name();
    const bool packed = name.ends_with(".weight_packed");
    if (!packed && !name.ends_with(".weight")) continue;
    const std::string module = name.substr(0, name.rfind('.'));
    const FoundParts parts{.name = module + ".weight",
                           .codes = &tensor,
                           .scales = checkpoint.find(module + ".weight_scale"),
                           .tensor_scale = checkpoint.find(module + ".weight_global_scale"),
                           .zero_points = checkpoint.find(module + ".weight_zero_point"),
                           .declared = tiles_for(module, config),
                           .divisor = true};
    if (packed && tensor.entry->type == StoredType::i32)
      assemble_int4_into(found, checkpoint, parts, misfits);
    else if (packed || parts.scales != nullptr || holds_codes(tensor))
      assemble_into(found, parts, misfits);
  }
  return found;
}

}  // namespace

std::string unsupported_transform(const Json& args) {
  const Json& transform = args["transform_config"];
  const Json& groups = transform["config_groups"];
  const bool none = transform.is_null() || (transform.is_object() && transform.members().empty()) ||
                    (groups.is_object() && groups.members().empty());
  if (!none)
    return "config.json has a transform_config: weights were multiplied by Hadamard or other "
           "matrices, which octavo does not undo";
  const Json& sparsity = args["sparsity_config"];
  const bool dense = sparsity.is_null() || (sparsity.is_object() && sparsity.members().empty()) ||
                     sparsity["format"].string_or("") == "dense";
  if (!dense)
    return text("config.json has a sparsity_config of the format '",
                shown(sparsity["format"].string_or(""), 60),
                "': sparse weights, which octavo does not decompress");
  return "";
}

const DialectTable& compressed_tensors_dialect() {
  static constexpr DialectTable kTable{
      kName,
      why_not,
      dialect_tensors,
      configure,
      find,
      false,
      {takes_input, ".input_scale", ".input_global_scale", ".k_scale", ".v_scale", false}};
  return kTable;
}

}  // namespace octavo
