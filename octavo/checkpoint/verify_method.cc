// Who reads what at all: quant_method, the kinds of weights a loader has, and names.
#include <algorithm>
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {
namespace {

// Matrices of experts, which transformers puts together when it loads them. Seen with 5.17 and
// compressed-tensors 0.20, with llm-compressor's own files too.
void check_experts(const VerifyView& view, Findings& out) {
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& module = weight.found->weight.module;
    if (module.find(".experts.") == std::string::npos) continue;
    if (weight.scheme == Scheme::nvfp4)
      out.error({kH}, module,
                "it loads experts of NVFP4 as something else, without an error; servers do not");
    if (weight.scheme == Scheme::fp8_block || weight.scheme == Scheme::mxfp8)
      out.error({kH}, module,
                "it cannot put experts with a grid of scales together; use the target deepseek for "
                "it");
  }
}

bool has_activations(const VerifyView& view) {
  for (const auto& [name, group] : view.words["config_groups"].members())
    if (group["input_activations"].is_object()) return true;
  return false;
}

}  // namespace

void check_method(const VerifyView& view, Findings& out) {
  const Dialect dialect = view.recognized.dialect;
  if (dialect == Dialect::comfyui || dialect == Dialect::octavo) {
    out.error({kV, kH, kS, kT}, "",
              text("it is spelled for ", name_of(dialect),
                   ", which this loader does not read; convert it"));
    return;
  }
  if (view.method.empty()) {
    out.error(
        {kH}, "",
        "config.json has no quantization_config, so codes are loaded as if they were weights, "
        "without an error");
    // ModelOpt's side file says the same to servers.
    if (!view.checkpoint.hf_quant_config()["quantization"].is_object())
      out.error({kV, kS, kT}, "", "config.json has no quantization_config; convert writes one");
    return;
  }
  if (view.method.starts_with("modelopt"))
    out.error({kH}, "",
              "quant_method 'modelopt' is unknown to it: it warns and loads codes as if they were "
              "weights; convert to compressed-tensors");
}

// The matrix of docs/numerics/dialects.md.
void check_support(const VerifyView& view, Findings& out) {
  std::set<Scheme> schemes;
  for (const VerifiedWeight& weight : view.weights) {
    if (weight.scheme) {
      schemes.insert(*weight.scheme);
      continue;
    }
    if (view.recognized.dialect == Dialect::octavo) continue;
    out.error({kV, kS, kT}, weight.found->weight.module,
              text("no server has ", describe(weight.found->weight.scaling)));
  }
  const auto has = [&](Scheme scheme) { return schemes.contains(scheme); };
  switch (view.recognized.dialect) {
    case Dialect::compressed_tensors:
      if (has(Scheme::fp8_tensor))
        out.error({kT}, "", "it takes FP8 per channel or in blocks, not per tensor");
      if (has(Scheme::nvfp4) && !has_activations(view))
        out.error({kS, kT}, "",
                  "it takes NVFP4 with activations of NVFP4 alone, and these are 16 bits wide");
      if (has(Scheme::mxfp8)) out.error({kS, kT}, "", "it has no MXFP8 in this spelling");
      if (has(Scheme::mxfp6)) out.error({kV, kS, kT}, "", "it has no MXFP6");
      if (has(Scheme::mxfp4)) {
        out.warn({kS}, "", "it has MXFP4 for experts alone");
        if (has_activations(view))
          out.error({kT}, "", "it has MXFP4 with activations of 16 bits alone");
      }
      check_experts(view, out);
      break;
    case Dialect::modelopt:
      if (has(Scheme::mxfp8))
        out.error({kS}, "", "it looks for 'weight_scale_inv' where ModelOpt writes 'weight_scale'");
      if (has(Scheme::mxfp4) || has(Scheme::mxfp6))
        out.error({kV, kS, kT}, "", "no server reads MXFP4 or MXFP6 in this spelling");
      break;
    case Dialect::deepseek:
      if (has(Scheme::mxfp8))
        out.error({kV}, "",
                  "it has no quant_method 'mxfp8'; use the target modelopt or "
                  "compressed-tensors");
      if (has(Scheme::fp8_tensor) || has(Scheme::fp8_channel))
        out.error({kT}, "", "it takes blocks of 128 x 128 alone in this spelling");
      break;
    case Dialect::comfyui:
    case Dialect::octavo:
      break;
  }
}

// One name a loader: nobody looks for two.
void check_scale_names(const VerifyView& view, Findings& out) {
  if (view.recognized.dialect != Dialect::deepseek) return;
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& name = weight.scales->plan.name;
    const bool inv = name.ends_with("_scale_inv");
    const bool blocks = weight.scheme == Scheme::fp8_block || weight.scheme == Scheme::mxfp8;
    if (!inv && !name.ends_with(".scale"))
      out.error({kH}, name,
                "it looks for '_scale_inv' alone, and without it loads codes as if they were "
                "weights");
    if (inv && !blocks)
      out.error({kV, kS}, name, "per tensor it looks for 'weight_scale'; use compressed-tensors");
    if (!inv && blocks) out.error({kV, kS, kT}, name, "for blocks it looks for 'weight_scale_inv'");
  }
}

void check_file_metadata(const VerifyView& view, Findings& out) {
  for (const auto& file : view.checkpoint.files()) {
    const auto& metadata = file.header().metadata;
    const auto found = metadata.find("format");
    if (found == metadata.end() || found->second != "pt")
      out.warn({kH}, "",
               text("'", shown(file.path(), 200),
                    "' does not say \"format\": \"pt\" in its metadata; versions before 5 refuse "
                    "it"));
  }
}

void check_groups(const VerifyView& view, Findings& out) {
  if (view.recognized.dialect != Dialect::compressed_tensors) return;
  const auto& groups = view.words["config_groups"].members();
  if (groups.empty() && !view.method.empty())
    out.error({kV, kH, kS, kT}, "",
              "config.json has no config_groups, so nothing is quantized to it");
  if (groups.size() < 2) return;
  for (const auto& [name, group] : groups)
    for (const Json& target : group["targets"].elements())
      if (target.string_or("") == "Linear")
        out.error({kT}, name,
                  "of several groups one has the target 'Linear', which it takes for all; name "
                  "modules instead");
}

}  // namespace octavo
