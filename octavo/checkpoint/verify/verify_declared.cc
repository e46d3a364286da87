// Rule on the declared scheme: config.json's description of weights and activations against the
// tensors.
#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

bool says(const Json& words, const QuantizedWeight& weight, std::optional<Scheme> scheme) {
  const std::string_view strategy = words["strategy"].string_or("");
  const Tile tile = weight.scaling.tile;
  if (words["num_bits"].integer_or(0) != weight.scaling.format.bits()) return false;
  if (words["type"].string_or("") != (weight.scaling.format.twos_complement ? "int" : "float"))
    return false;
  if (tile == Tile{0, 0}) return strategy == "tensor";
  if (tile == Tile{1, 0}) return strategy == "channel";
  if (tile.rows > 1) {
    const auto& block = words["block_structure"].elements();
    return strategy == "block" && block.size() == 2 && block[0].integer_or(0) == tile.rows &&
           block[1].integer_or(0) == tile.cols;
  }
  return strategy == (scheme == Scheme::nvfp4 ? "tensor_group" : "group") &&
         words["group_size"].integer_or(0) == tile.cols;
}

void check_groups_say(const VerifyView& view, Findings& out) {
  const auto& groups = view.words["config_groups"].members();
  if (groups.empty()) return;
  for (const VerifiedWeight& weight : view.weights) {
    const QuantizedWeight& of = weight.found->weight;
    bool targeted = false, declared = false, says_bytes = false;
    for (const auto& [name, group] : groups) {
      const auto& targets = group["targets"].elements();
      if (!std::any_of(targets.begin(), targets.end(), [&](const Json& target) {
            return is_target(target.string_or(""), of.module);
          }))
        continue;
      targeted = true;
      declared |= says(group["weights"], of, weight.scheme);
      says_bytes |= group["weights"]["scale_dtype"].string_or("") == "torch.uint8";
    }
    const bool bytes = of.scaling.scale.format == ScaleFormat::e8m0 && of.scaling.tile.rows == 1;
    if (!targeted)
      out.error({kV, kH, kS, kT}, weight.codes->plan.name,
                "no group of config.json has it as a target, so codes are loaded as if they were "
                "weights");
    else if (!declared)
      out.error({kV, kH, kS, kT}, weight.codes->plan.name,
                text("no config group that it is in declares ", describe(of.scaling)));
    else if (bytes && !says_bytes)
      out.error({kV, kH, kS, kT}, weight.scales->plan.name,
                "its scales are bytes, and no group of config.json says \"scale_dtype\": "
                "\"torch.uint8\"");
  }
}

std::string block_text(const Json& block) {
  return block.is_null() ? "no weight_block_size"
                         : text("weight_block_size ", shown(block.dump(0), 40));
}

void check_fp8_says(const VerifyView& view, Findings& out) {
  const bool mx = view.method == "mxfp8";
  const Json& block = view.words["weight_block_size"];
  const auto& sizes = block.elements();
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& name = weight.codes->plan.name;
    const Tile tile = weight.found->weight.scaling.tile;
    const bool is_block = tile.rows > 0 && tile.cols > 0;
    if (mx != (weight.scheme == Scheme::mxfp8)) {
      out.error({kV, kH, kS, kT}, name,
                text("config.json says '", view.method, "', and it is ",
                     describe(weight.found->weight.scaling)));
      continue;
    }
    if (mx && block.is_null()) continue;  // MX blocks are 1 x 32 whatever is declared
    const bool same = is_block ? sizes.size() == 2 && sizes[0].integer_or(0) == tile.rows &&
                                     sizes[1].integer_or(0) == tile.cols
                               : block.is_null();
    if (!same)
      out.error(
          {kV, kH, kS, kT}, name,
          text("config.json has ", block_text(block), ", and its scales are for ",
               is_block ? text("[", tile.rows, ", ", tile.cols, "]") : std::string("no blocks")));
  }
}

// SGLang collects group_size from several places of config.json, and fails where they differ.
void check_group_sizes(const Json& words, Findings& out) {
  const std::int64_t declared = words["group_size"].integer_or(0);
  for (const auto& [name, group] : words["config_groups"].members()) {
    const std::int64_t own = group["weights"]["group_size"].integer_or(declared);
    if (declared > 0 && own != declared)
      out.error(
          {kS}, name,
          text("config.json says group_size ", declared, " for all and ", own, " for this group"));
  }
}

// Checks one of the two files that declare the scheme against the weights.
void check_modelopt_says(const VerifyView& view, const Json& words, std::string_view file,
                         Findings& out) {
  for (const VerifiedWeight& weight : view.weights) {
    const QuantizedWeight& of = weight.found->weight;
    const Json& layer = words["quantized_layers"][of.module];
    const Json& declared = layer.is_object() ? layer : words;
    const std::string algorithm = modelopt_algorithm(words, of.module);
    if (!weight.scheme) continue;
    struct Meaning {
      std::string_view algorithm;
      Scheme scheme;
    };
    constexpr std::array<Meaning, 6> kMeanings{{{"FP8", Scheme::fp8_tensor},
                                                {"FP8_PER_CHANNEL_PER_TOKEN", Scheme::fp8_channel},
                                                {"FP8_PB_WO", Scheme::fp8_block},
                                                {"MXFP8", Scheme::mxfp8},
                                                {"NVFP4", Scheme::nvfp4},
                                                {"W4A16_NVFP4", Scheme::nvfp4}}};
    const auto meant = std::find_if(kMeanings.begin(), kMeanings.end(),
                                    [&](const Meaning& one) { return one.algorithm == algorithm; });
    if (meant == kMeanings.end() || meant->scheme != *weight.scheme)
      out.error({kV, kS, kT}, weight.codes->plan.name,
                algorithm.empty()
                    ? text(file, " has no quant_algo for it, and it is ", describe(of.scaling))
                    : text(file, " says quant_algo '", shown(algorithm), "', and it is ",
                           describe(of.scaling)));
    const Tile tile = of.scaling.tile;
    const std::int64_t group = declared["group_size"].integer_or(tile.cols);
    if (meant != kMeanings.end() && tile.rows == 1 && tile.cols > 0 && group != tile.cols)
      out.error({kV, kS, kT}, weight.scales->plan.name,
                text(file, " says group_size ", group, ", and its scales are for ", tile.cols));
  }
}

}  // namespace

void check_declared_scheme(const VerifyView& view, Findings& out) {
  if (view.recognized.dialect == Dialect::modelopt) {
    const Json& side = view.checkpoint.hf_quant_config()["quantization"];
    if (!view.method.empty()) {
      check_modelopt_says(view, view.words, "config.json", out);
      check_group_sizes(view.words, out);
    }
    if (side.is_object()) check_modelopt_says(view, side, "hf_quant_config.json", out);
  }
  if (view.method.empty()) return;
  if (view.recognized.dialect == Dialect::compressed_tensors) check_groups_say(view, out);
  if (view.recognized.dialect == Dialect::deepseek) check_fp8_says(view, out);
}

}  // namespace octavo
