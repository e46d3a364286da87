// The deepseek dialect: DeepSeek-V3's format, quant_method `fp8` in transformers. 128 x 128 block
// scales that multiply although the tensor is named weight_scale_inv. With scale_fmt ue8m0 scales
// are powers of two. The same loader reads MXFP8 as quant_method `mxfp8`, with E8M0 bytes as
// scales.
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;

constexpr std::string_view kName = "deepseek";

bool has_powers(const Scaling& scaling) {
  return scaling.scale.format == ScaleFormat::e8m0 || is_power_of_two_rule(scaling.scale.rule);
}

std::string why_not(const QuantizedWeight& weight) {
  const auto scheme = scheme_of(weight.scaling);
  if ((scheme != Scheme::fp8_block && scheme != Scheme::mxfp8) || weight.scaling.format != e4m3fn)
    return unsupported_scaling(kName, weight.scaling, "fp8-block and mxfp8 of e4m3fn");
  const Extent extent = extent_of(weight);
  if (extent.rows == 0 || extent.cols == 0) return "it has no elements";
  if (weight.shape.rank() > 3) return "it is more than a stack of matrices";
  if (weight.shape.rank() == 3 && weight.name.ends_with(".weight"))
    return "its loaders want experts as matrices, or as a stack whose name does not end in "
           "'.weight'";
  if (weight.shape.rank() == 2 && !weight.name.ends_with(".weight"))
    return "its name does not end in '.weight'";
  if (scheme == Scheme::fp8_block) return why_no_blocks(kName, weight);
  return extent.cols % kMxBlock == 0 ? "" : not_divisible(kName, "columns", extent.cols, kMxBlock);
}

std::vector<DialectTensor> dialect_tensors(const QuantizedWeight& weight) {
  const bool blocks = scheme_of(weight.scaling) == Scheme::fp8_block;
  const std::vector<std::uint64_t> shape(weight.shape.sizes().begin(), weight.shape.sizes().end());
  std::vector<std::uint64_t> grid = shape;
  if (blocks) grid[grid.size() - 2] = (grid[grid.size() - 2] + kBlock - 1) / kBlock;
  grid.back() /= blocks ? kBlock : 32;
  return {{.plan = {.name = weight.name, .type = StoredType::f8_e4m3, .shape = shape}},
          {.plan = {.name = weight.name + "_scale_inv",
                    .type = blocks ? StoredType::f32 : StoredType::u8,
                    .shape = grid},
           .part = Part::scales}};
}

void configure(const QuantizedModel& model, Json& config, Json&) {
  const std::vector<Scheme> schemes = schemes_of(model);
  bool powers = true;
  for (const QuantizedWeight& weight : model.weights) powers &= has_powers(weight.scaling);
  check(schemes.size() == 1, ErrorCode::unsupported, kDialectOp,
        "the deepseek target supports one scheme per model, got ", name_of(schemes[0]),
        " and others; use one recipe, or the target compressed-tensors");
  const Json skipped = json_list(ignore_list(model));
  if (schemes[0] == Scheme::mxfp8) {
    config.set("quantization_config", Json::object({{"quant_method", "mxfp8"},
                                                    {"activation_scheme", "dynamic"},
                                                    {"weight_block_size", Json::array({1, 32})},
                                                    {"modules_to_not_convert", skipped}}));
    return;
  }
  Json& quant_config = config.set(
      "quantization_config", Json::object({{"quant_method", "fp8"},
                                           {"activation_scheme", "dynamic"},
                                           {"fmt", "e4m3"},
                                           {"weight_block_size", Json::array({kBlock, kBlock})}}));
  if (powers) quant_config.set("scale_fmt", "ue8m0");
  quant_config.set("modules_to_not_convert", skipped);
}

std::vector<FoundWeight> find(const CheckpointReader& checkpoint, Misfits* misfits) {
  const Json& config = quantization_config(checkpoint.config());
  const auto& block = config["weight_block_size"].elements();
  const bool powers = config["scale_fmt"].string_or("") == "ue8m0";
  std::vector<FoundWeight> found;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::string& name = tensor.name();
    FoundParts parts{
        .name = name, .codes = &tensor, .scales = checkpoint.find(name + "_scale_inv")};
    if (block.size() == 2)
      parts.declared = {{block[0].integer_or(kBlock), block[1].integer_or(kBlock)}};
    parts.powers = powers;
    // DeepSeek-V4 names it `.scale`; per-tensor files of vLLM have `weight_scale`.
    if (parts.scales == nullptr && name.ends_with(".weight")) {
      const std::string module = name.substr(0, name.size() - 7);
      parts.scales = checkpoint.find(module + ".scale");
      if (parts.scales == nullptr) parts.scales = checkpoint.find(module + ".weight_scale");
    }
    if (parts.scales == nullptr && !(name.ends_with(".weight") && holds_fp8(tensor))) continue;
    if (!holds_codes(tensor)) continue;  // norms may have a `.scale`, too
    assemble_into(found, parts, misfits);
  }
  return found;
}

}  // namespace

const DialectTable& deepseek_dialect() {
  static constexpr DialectTable kTable{kName, why_not, dialect_tensors, configure, find};
  return kTable;
}

}  // namespace octavo
