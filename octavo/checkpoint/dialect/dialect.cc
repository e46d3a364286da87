// The list of dialects, and their common functions.
#include "octavo/checkpoint/dialect/dialect.h"

#include <algorithm>
#include <array>
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/quantized_file_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;
using safetensors::TensorPlan;

// In the order of Dialect.
using Getter = const DialectTable& (*)();
constexpr std::array<Getter, 6> kDialects{compressed_tensors_dialect,
                                          deepseek_dialect,
                                          modelopt_dialect,
                                          comfyui_dialect,
                                          octavo_dialect,
                                          gguf_dialect};

constexpr std::array<std::string_view, 9> kSchemes{
    "fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "int8-channel", "int4"};

// Weights that no dialect can hold.
std::string common_reason(const QuantizedWeight& weight) {
  const Scaling& scaling = weight.scaling;
  if (weight.shape.rank() < 2) return "it is no matrix";
  if (!scaling.rowwise || scaling.columnwise) return "files hold the rowwise copy alone";
  if (scaling.hadamard.rowwise) return "no loader undoes a Hadamard transform";
  if (scaling.axis != -1 && scaling.axis != weight.shape.rank() - 1)
    return "tiles must run along the last dimension";
  if (!scaling.packed && scaling.format.bits() < 8) return "codes below eight bits must be packed";
  return "";
}

}  // namespace

const DialectTable& table_of(Dialect dialect) {
  return kDialects[static_cast<std::size_t>(dialect)]();
}

std::string_view name_of(Dialect dialect) { return table_of(dialect).name; }

std::vector<std::string> dialect_names() {
  std::vector<std::string> names;
  for (const Getter get : kDialects) names.emplace_back(get().name);
  return names;
}

Dialect parse_dialect(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kDialects.size(); ++i) {
    if (kDialects[i]().name == name) return static_cast<Dialect>(i);
    known += text(i > 0 ? ", " : "", kDialects[i]().name);
  }
  fail(ErrorCode::invalid_argument, kDialectOp, "got the target '", shown(name),
       "'; expected one of ", known);
}

std::string_view name_of(Scheme scheme) { return kSchemes[static_cast<std::size_t>(scheme)]; }

std::optional<Scheme> scheme_of(const Scaling& scaling) {
  const ScaleFormat scale = scaling.scale.format;
  if (scale == ScaleFormat::e4m3_f32) {
    if (scaling.tile == Tile{1, 16} && scaling.format == e2m1fn) return Scheme::nvfp4;
    return std::nullopt;
  }
  if (scaling.format == int4) {
    const bool known = scaling.tile.rows == 1 && std::find(kInt4Groups.begin(), kInt4Groups.end(),
                                                           scaling.tile.cols) != kInt4Groups.end();
    return known && scale != ScaleFormat::e8m0 ? std::optional(Scheme::int4_group) : std::nullopt;
  }
  if (scaling.tile == Tile{1, 32}) {
    if (scale != ScaleFormat::e8m0) return std::nullopt;
    if (scaling.format == e4m3fn) return Scheme::mxfp8;
    if (scaling.format == e2m3fn) return Scheme::mxfp6;
    if (scaling.format == e2m1fn) return Scheme::mxfp4;
    return std::nullopt;
  }
  if (scaling.format == int8) {
    const bool floats = scale != ScaleFormat::e8m0 && scaling.tile == Tile{1, 0};
    return floats ? std::optional(Scheme::int8_channel) : std::nullopt;
  }
  if (scaling.format != e4m3fn && scaling.format != e5m2) return std::nullopt;
  if (scaling.tile == Tile{0, 0}) return Scheme::fp8_tensor;
  if (scaling.tile == Tile{1, 0}) return Scheme::fp8_channel;
  if (scaling.tile == Tile{kBlock, kBlock}) return Scheme::fp8_block;
  return std::nullopt;
}

Extent extent_of(const QuantizedWeight& weight) {
  const int rank = weight.shape.rank();
  Extent extent{.rows = 1, .cols = rank > 0 ? weight.shape[rank - 1] : 1};
  for (int i = 0; i + 1 < rank; ++i) extent.rows *= weight.shape[i];
  extent.matrix_rows = rank > 1 ? weight.shape[rank - 2] : 1;
  return extent;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += text(i > 0 ? ", " : "", shape[i]);
  return out + "]";
}

std::string unsupported_scaling(std::string_view dialect, const Scaling& scaling,
                                std::string_view knows) {
  return text(dialect, " does not support ", describe(scaling), "; it knows ", knows);
}

std::string not_divisible(std::string_view loader, std::string_view what, std::int64_t size,
                          std::int64_t by) {
  return text(loader, " wants ", what, " in multiples of ", by, ", got ", size);
}

std::string why_no_matrix(const QuantizedWeight& weight) {
  if (weight.shape.rank() != 2) return "its loaders want experts as matrices, one tensor for each";
  if (!weight.name.ends_with(".weight")) return "its name does not end in '.weight'";
  const Extent extent = extent_of(weight);
  if (extent.rows == 0 || extent.cols == 0) return "it has no elements";
  return "";
}

std::string why_no_blocks(std::string_view loader, const QuantizedWeight& weight) {
  const Extent extent = extent_of(weight);
  if (extent.cols % kBlock != 0) return not_divisible(loader, "columns", extent.cols, kBlock);
  if (extent.matrix_rows % kBlock == 0) return "";
  const bool stack = extent.rows != extent.matrix_rows;
  if (!stack && fused_place(weight.module) != FusedPlace::inner) return "";
  return not_divisible(loader, "rows", extent.matrix_rows, kBlock);
}

TensorPlan plan_tensor(std::string name, StoredType type,
                       std::initializer_list<std::int64_t> shape) {
  return {.name = std::move(name), .type = type, .shape = {shape.begin(), shape.end()}};
}

StoredType byte_code_type(const Scaling& scaling) {
  if (scaling.format == int8) return StoredType::i8;
  return scaling.format == e5m2 ? StoredType::f8_e5m2 : StoredType::f8_e4m3;
}

std::vector<std::string> ignore_list(const QuantizedModel& model) {
  std::set<std::string> modules(model.plain_modules.begin(), model.plain_modules.end());
  modules.insert(model.plain_holders.begin(), model.plain_holders.end());
  const bool has_head =
      std::any_of(model.weights.begin(), model.weights.end(),
                  [](const QuantizedWeight& weight) { return weight.module.ends_with("lm_head"); });
  const bool names_head = std::any_of(modules.begin(), modules.end(), [](const std::string& name) {
    return name.ends_with("lm_head");
  });
  if (!has_head && !names_head) modules.insert("lm_head");
  return {modules.begin(), modules.end()};
}

Json json_list(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& one : texts) list.push(one);
  return list;
}

bool has_static_input(const QuantizedModel& model, Scheme scheme) {
  return std::any_of(model.weights.begin(), model.weights.end(), [&](const QuantizedWeight& one) {
    return one.static_input && scheme_of(one.scaling) == scheme;
  });
}

std::optional<SchemeUse> use_of(const Scaling& scaling) {
  const auto scheme = scheme_of(scaling);
  if (!scheme) return std::nullopt;
  return SchemeUse{*scheme, *scheme == Scheme::int4_group ? scaling.tile.cols : 0};
}

std::vector<SchemeUse> uses_of(const QuantizedModel& model) {
  std::vector<SchemeUse> uses;
  for (const QuantizedWeight& weight : model.weights) {
    const auto use = use_of(weight.scaling);
    if (use && std::find(uses.begin(), uses.end(), *use) == uses.end()) uses.push_back(*use);
  }
  return uses;
}

std::vector<Scheme> schemes_of(const QuantizedModel& model) {
  std::vector<Scheme> schemes;
  for (const SchemeUse& use : uses_of(model))
    if (std::find(schemes.begin(), schemes.end(), use.scheme) == schemes.end())
      schemes.push_back(use.scheme);
  return schemes;
}

void note_plain(QuantizedModel& model, std::string_view name,
                const std::vector<std::uint64_t>& shape, Role role) {
  if (role == Role::expert_stack) {
    // Loaders match the ignore list against the module that holds the stack, or against the name of
    // the fused parameter.
    model.plain_modules.emplace_back(module_of(name));
    if (!holder_of(name).empty()) model.plain_holders.emplace_back(holder_of(name));
    return;
  }
  if (shape.size() >= 2 && name.ends_with(".weight") && role != Role::embedding &&
      role != Role::norm && role != Role::position)
    model.plain_modules.emplace_back(module_of(name));
}

bool takes_stacks(Dialect dialect) { return table_of(dialect).stacks; }

std::string why_not(Dialect dialect, const QuantizedWeight& weight) {
  const std::string reason = common_reason(weight);
  return reason.empty() ? table_of(dialect).why_not(weight) : reason;
}

std::vector<DialectTensor> dialect_tensors(Dialect dialect, const QuantizedWeight& weight) {
  const std::string reason = why_not(dialect, weight);
  if (!reason.empty())
    fail(ErrorCode::unsupported, kDialectOp, "'", shown(weight.name, 200), "' of shape ",
         to_string(weight.shape), " cannot be written for ", name_of(dialect), ": ", reason);
  return table_of(dialect).dialect_tensors(weight);
}

safetensors::Metadata metadata_of(Dialect dialect, const std::vector<QuantizedWeight>& weights) {
  safetensors::Metadata metadata{{"format", "pt"}};  // required by transformers
  if (dialect == Dialect::octavo)
    for (const QuantizedWeight& weight : weights)
      describe_in(metadata, weight.name, weight.shape, weight.source, weight.scaling);
  return metadata;
}

void configure(Dialect dialect, const QuantizedModel& model, Json& config, Json& hf_quant_config) {
  remove_quantization_config(config);
  hf_quant_config = Json();
  if (!model.weights.empty()) table_of(dialect).configure(model, config, hf_quant_config);
}

}  // namespace octavo
