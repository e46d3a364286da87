// Rules on static activation quantization and KV cache quantization: the checkpoint must have their
// scales.
#include <array>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

bool has_tensor(const VerifyView& view, std::string_view module, std::string_view suffix) {
  return view.checkpoint.find(text(module, suffix)) != nullptr;
}

// The name of a config group's static scales; empty where activation quantization is dynamic.
std::string_view static_scale(const Json& declared, std::string_view once,
                              std::string_view global) {
  if (!declared.is_object()) return {};
  if (declared["dynamic"].string_or("") == "local") return global;
  return declared["dynamic"].boolean_or(false) ? std::string_view() : once;
}

void check_group_activations(const VerifyView& view, Findings& out) {
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& module = weight.found->weight.module;
    const Json& group = view.groups.of(module);
    const std::string_view input =
        static_scale(group["input_activations"], ".input_scale", ".input_global_scale");
    if (!input.empty() && !has_tensor(view, module, input))
      out.error({kV, kH, kS, kT}, module,
                text("its group has static activations, and '", input.substr(1), "' is missing"));
    const std::string_view output =
        static_scale(group["output_activations"], ".output_scale", ".output_global_scale");
    if (output.empty()) continue;
    out.warn({kV, kS, kT}, module,
             "its group has output_activations, and it does not quantize outputs");
    if (!has_tensor(view, module, output))
      out.error(
          {kH}, module,
          text("its group has static output_activations, and '", output.substr(1), "' is missing"));
  }
}

// The file and key that declare a quantized KV cache with static scales; empty where the cache is
// not quantized, or its scales are dynamic, as NVFP4's are.
std::string cache_of(const VerifyView& view) {
  const Json& scheme = view.words["kv_cache_scheme"];
  if (scheme.is_object() && !scheme["dynamic"].boolean_or(false))
    return "config.json (kv_cache_scheme)";
  const auto [algorithm, file] = cache_algorithm(view.checkpoint);
  return algorithm == "FP8" || algorithm == "fp8" ? text(file, " (kv_cache_quant_algo)") : "";
}

// ModelOpt's quant_algo of a layer, config.json first; older exports have quantized_layers in
// hf_quant_config.json only.
std::string declared_algorithm(const VerifyView& view, const std::string& module) {
  std::string declared = modelopt_algorithm(view.words, module);
  return declared.empty() || declared == "MIXED_PRECISION"
             ? modelopt_algorithm(view.checkpoint.hf_quant_config()["quantization"], module)
             : declared;
}

// Suffixes of the static activation scales that a weight's module needs; none where they are
// dynamic.
std::vector<std::string_view> input_scales(const VerifyView& view, const VerifiedWeight& weight) {
  const std::string& module = weight.found->weight.module;
  switch (view.recognized.dialect) {
    case Dialect::compressed_tensors: {
      const std::string_view one = static_scale(view.groups.of(module)["input_activations"],
                                                ".input_scale", ".input_global_scale");
      if (one.empty()) return {};
      return {one};
    }
    case Dialect::modelopt:
      if (weight.scheme == Scheme::fp8_tensor || declared_algorithm(view, module) == "NVFP4")
        return {".input_scale"};
      return {};
    case Dialect::deepseek:
      if (view.words["activation_scheme"].string_or("") != "static") return {};
      return {".input_scale", ".activation_scale"};
    default:
      return {".input_scale", ".scale_input"};
  }
}

// KV cache scales under the names that servers read.
void check_cache_scales(const VerifyView& view, Findings& out) {
  const std::string declared = cache_of(view);
  if (declared.empty()) return;
  struct Names {
    std::string_view module;
    std::array<std::string_view, 5> scales;
  };
  constexpr std::array<Names, 2> kNames{
      {{".k_proj.weight",
        {".k_scale", ".attn.k_scale", ".k_proj.k_scale", ".k_proj.output_scale", ".kv_scale"}},
       {".v_proj.weight",
        {".v_scale", ".attn.v_scale", ".v_proj.v_scale", ".v_proj.output_scale", ".kv_scale"}}}};
  for (const std::string& name : view.names)
    for (const Names& one : kNames) {
      if (!name.ends_with(one.module)) continue;
      const std::string at = name.substr(0, name.size() - one.module.size());
      bool there = false;
      for (const std::string_view scale : one.scales) there |= has_tensor(view, at, scale);
      if (there) continue;
      const std::string scale = at + std::string(one.scales.front());
      const std::string what =
          text("it is missing, and by ", declared, " the KV cache is quantized: ");
      out.warn({kV, kS, kT}, scale, what + "it is filled as if the scale were 1");
      if (view.method == "compressed-tensors")
        out.warn({kH}, scale, what + "it warns, and makes a scale up");
    }
}

}  // namespace

void check_static_scales(const VerifyView& view, StaticFault fault, Findings& out) {
  const auto look = [&](const StoredTensor& tensor) {
    const StaticNumber number = static_number(view.checkpoint, tensor);
    // NaN and Inf belong to the rule `values`.
    if (number.fault == fault && std::isfinite(number.value))
      out.error({kV, kH, kS, kT}, tensor.name(), "a static scale: " + number.reason);
  };
  for (const VerifiedWeight& weight : view.weights)
    for (const std::string_view suffix : input_scales(view, weight))
      if (const StoredTensor* const found =
              view.checkpoint.find(text(weight.found->weight.module, suffix)))
        look(*found);
  // Per-head scales have another shape and different server support.
  const bool single =
      view.words["kv_cache_scheme"]["strategy"].string_or("tensor") == std::string_view("tensor");
  if (cache_of(view).empty() || !single) return;
  for (const StoredTensor& tensor : view.checkpoint.tensors())
    if (is_cache_scale(tensor.name())) look(tensor);
}

void check_activation_scales(const VerifyView& view, Findings& out) {
  check_cache_scales(view, out);
  if (!view.recognized.quantized) return;
  const Dialect dialect = view.recognized.dialect;
  const auto lacks = [&](const VerifiedWeight& weight, std::string_view suffix) {
    return !has_tensor(view, weight.found->weight.module, suffix);
  };
  if (dialect == Dialect::modelopt)
    for (const VerifiedWeight& weight : view.weights) {
      const std::string& module = weight.found->weight.module;
      if (!lacks(weight, ".input_scale")) continue;
      if (weight.scheme == Scheme::fp8_tensor)
        out.error({kV, kS}, module,
                  "FP8 per tensor is static there, and 'input_scale' is missing; use fp8-channel, "
                  "or the target compressed-tensors");
      if (weight.scheme == Scheme::nvfp4 && declared_algorithm(view, module) == "NVFP4")
        out.error({kV, kS, kT}, module,
                  "quant_algo 'NVFP4' has activations of FP4 with a scale, and 'input_scale' is "
                  "missing; weights alone are 'W4A16_NVFP4'");
    }
  if (dialect == Dialect::deepseek && !view.method.empty()) {
    const std::string_view scheme = view.words["activation_scheme"].string_or("");
    if (scheme != "dynamic" && scheme != "static")
      out.error({kV, kS}, "",
                text("config.json has activation_scheme '", shown(scheme),
                     "'; expected 'dynamic' (or 'static')"));
    if (scheme == "static" && !view.words["weight_block_size"].is_null())
      out.error({kV, kS, kT}, "",
                "config.json says activation_scheme 'static', and weights in blocks have dynamic "
                "activations alone");
    if (scheme == "static")
      for (const VerifiedWeight& weight : view.weights) {
        const std::string& module = weight.found->weight.module;
        constexpr std::string_view kMissing =
            "config.json says activation_scheme 'static', and there is no '";
        if (lacks(weight, ".input_scale"))
          out.error({kV, kS}, module, text(kMissing, "input_scale'"));
        if (lacks(weight, ".activation_scale"))
          out.error({kH}, module, text(kMissing, "activation_scale'"));
      }
  }
  if (dialect == Dialect::compressed_tensors) check_group_activations(view, out);
}

}  // namespace octavo
