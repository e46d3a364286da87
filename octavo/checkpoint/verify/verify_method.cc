// Rules on loader support: quant_method, schemes per dialect, and scale names.
#include <algorithm>
#include <map>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

// Per-expert matrices, which transformers merges into stacks while loading. Observed with 5.17 and
// compressed-tensors 0.20, also with llm-compressor's own files.
void check_experts(const VerifyView& view, Findings& out) {
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& module = weight.found->weight.module;
    if (module.find(".experts.") == std::string::npos) continue;
    if (weight.scheme == Scheme::nvfp4)
      out.silent_error({kH}, module,
                       "it loads experts of NVFP4 as something else, without an error; servers do "
                       "not");
    if (weight.scheme == Scheme::fp8_block || weight.scheme == Scheme::mxfp8)
      out.error({kH}, module,
                "it cannot put experts with a grid of scales together; use the target deepseek for "
                "it");
  }
}

// ComfyUI loads one file, in its own dialect; other names than its own it takes for unknown ones.
void check_comfyui(const VerifyView& view, Findings& out) {
  if (view.recognized.dialect != Dialect::comfyui)
    out.error({kC}, "",
              text("its dialect is ", name_of(view.recognized.dialect),
                   ", and it reads its own alone; convert it to the target comfyui"));
  else if (view.checkpoint.files().size() > 1)
    out.error({kC}, "",
              text("it loads one file, and these are ", view.checkpoint.files().size(),
                   "; write one (-o NAME.safetensors)"));
}

// A file of a dialect without a config: transformers reads what has the name and the shape of a
// weight, which codes of one byte have.
bool takes_codes_for_weights(const VerifyView& view) {
  return view.checkpoint.config().is_object() &&
         std::any_of(view.weights.begin(), view.weights.end(), [](const VerifiedWeight& weight) {
           const auto sizes = weight.found->weight.shape.sizes();
           return weight.codes->plan.name == weight.found->weight.name &&
                  std::equal(sizes.begin(), sizes.end(), weight.codes->plan.shape.begin(),
                             weight.codes->plan.shape.end());
         });
}

// Weights of one scheme, by what their config groups declare of activations.
struct Schemes {
  struct Of {
    std::string any, plain_activations, quantized_activations, no_expert;  // first of each kind
  };
  std::map<Scheme, Of> found;

  explicit Schemes(const VerifyView& view) {
    for (const VerifiedWeight& weight : view.weights) {
      if (!weight.scheme) continue;
      const std::string& module = weight.found->weight.module;
      Of& of = found[*weight.scheme];
      const bool quantized = view.groups.of(module)["input_activations"].is_object();
      const auto keep = [&](std::string& first) {
        if (first.empty()) first = module;
      };
      keep(of.any);
      keep(quantized ? of.quantized_activations : of.plain_activations);
      if (module.find(".experts.") == std::string::npos) keep(of.no_expert);
    }
  }
  // With one scheme a finding is about the model (""); with several it names the first weight.
  // nullopt where no weight matches.
  [[nodiscard]] std::optional<std::string_view> where(Scheme scheme,
                                                      std::string Of::*which = &Of::any) const {
    const auto of = found.find(scheme);
    if (of == found.end() || (of->second.*which).empty()) return std::nullopt;
    return found.size() == 1 ? std::string_view() : std::string_view(of->second.*which);
  }
};

}  // namespace

void check_method(const VerifyView& view, Findings& out) {
  if (view.words.is_object() && view.method.empty()) {
    out.error({kV, kH, kS, kT}, "",
              "config.json has a quantization_config without quant_method, by which it is known "
              "what was done; convert writes one");
    return;
  }
  if (!view.recognized.quantized) return;
  const Dialect dialect = view.recognized.dialect;
  check_comfyui(view, out);
  if (dialect == Dialect::comfyui || dialect == Dialect::octavo) {
    const std::string message =
        text("its dialect is ", name_of(dialect), ", which this loader does not read; convert it");
    out.error({kV, kS, kT}, "", message);
    // It warns of a quant_method that it does not know; without one it says nothing.
    if (view.method.empty() && takes_codes_for_weights(view))
      out.silent_error({kH}, "", message + ": it takes codes for weights, without an error");
    else
      out.error({kH}, "", message);
    return;
  }
  if (view.method.empty()) {
    out.silent_error(
        {kH}, "",
        "config.json has no quantization_config, so codes are loaded as if they were weights, "
        "without an error");
    // Servers read the same from ModelOpt's sidecar file.
    if (!view.checkpoint.hf_quant_config()["quantization"].is_object())
      out.error({kV, kS, kT}, "", "config.json has no quantization_config; convert writes one");
    return;
  }
  if (view.method.starts_with("modelopt"))
    out.error({kH}, "",
              "quant_method 'modelopt' is unknown to it: it warns and loads codes as if they were "
              "weights; convert to compressed-tensors");
}

// The support matrix of docs/numerics/dialects.md.
void check_support(const VerifyView& view, Findings& out) {
  for (const VerifiedWeight& weight : view.weights)
    if (!weight.scheme && view.recognized.dialect != Dialect::octavo)
      out.error({kV, kS, kT}, weight.found->weight.module,
                text("no server has ", describe(weight.found->weight.scaling)));
  using Of = Schemes::Of;
  const Schemes schemes(view);
  const auto has = [&](Scheme scheme) { return schemes.where(scheme); };
  switch (view.recognized.dialect) {
    case Dialect::compressed_tensors:
      if (const auto at = has(Scheme::fp8_tensor))
        out.error({kT}, *at, "it takes FP8 per channel or in blocks, not per tensor");
      if (const auto at = schemes.where(Scheme::nvfp4, &Of::plain_activations))
        out.error({kS, kT}, *at,
                  "it takes NVFP4 with activations of NVFP4 alone, and these are 16 bits wide");
      if (const auto at = has(Scheme::mxfp8))
        out.error({kS, kT}, *at, "it has no MXFP8 in this dialect");
      if (const auto at = has(Scheme::mxfp6)) out.error({kV, kS, kT}, *at, "it has no MXFP6");
      if (const auto at = has(Scheme::int8_channel))
        out.error({kT}, *at,
                  "it does not look at the type of 8 bits per channel, and takes INT8 for FP8");
      if (const auto at = schemes.where(Scheme::int8_channel, &Of::plain_activations))
        out.error({kV, kS}, *at,
                  "it has INT8 (int-quantized) with activations of INT8 alone, and these are 16 "
                  "bits wide");
      if (const auto at = has(Scheme::int4_group)) {
        out.error({kT}, *at, "it has no INT4 of this dialect");
        if (schemes.found.size() > 1)
          out.error({kS}, *at,
                    "it knows INT4 by the format 'pack-quantized' of the whole model, and this one "
                    "has other schemes beside it");
      }
      if (const auto at = schemes.where(Scheme::int4_group, &Of::quantized_activations))
        out.error({kV, kS}, *at, "it has INT4 (pack-quantized) with activations of 16 bits alone");
      if (const auto at = schemes.where(Scheme::mxfp4, &Of::no_expert))
        out.error({kS}, *at, "it has MXFP4 for experts alone");
      if (const auto at = schemes.where(Scheme::mxfp4, &Of::quantized_activations))
        out.error({kT}, *at, "it has MXFP4 with activations of 16 bits alone");
      check_experts(view, out);
      break;
    case Dialect::modelopt:
      if (const auto at = has(Scheme::mxfp8))
        out.error({kS}, *at,
                  "it looks for 'weight_scale_inv' where ModelOpt writes 'weight_scale'");
      for (const Scheme scheme : {Scheme::mxfp4, Scheme::mxfp6})
        if (const auto at = has(scheme))
          out.error({kV, kS, kT}, *at, "no server reads MXFP4 or MXFP6 in this dialect");
      break;
    case Dialect::deepseek:
      if (const auto at = has(Scheme::mxfp8))
        out.error({kV}, *at,
                  "it looks for 'weight_scale' and stops at 'weight_scale_inv', which this dialect "
                  "writes for MXFP8; use the target modelopt or compressed-tensors");
      for (const Scheme scheme : {Scheme::fp8_tensor, Scheme::fp8_channel})
        if (const auto at = has(scheme))
          out.error({kT}, *at, "it supports only 128 x 128 blocks in this dialect");
      break;
    case Dialect::comfyui:
    case Dialect::octavo:
    case Dialect::gguf:
      break;
  }
}

// Each loader looks for one scale name only.
void check_scale_names(const VerifyView& view, Findings& out) {
  if (view.recognized.dialect != Dialect::deepseek) return;
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& name = weight.scales->plan.name;
    const bool inv = name.ends_with("_scale_inv");
    const bool blocks = weight.scheme == Scheme::fp8_block || weight.scheme == Scheme::mxfp8;
    if (!inv && !name.ends_with(".scale"))
      out.silent_error({kH}, name,
                       "it looks for '_scale_inv' alone, and without it loads codes as if they "
                       "were weights");
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

}  // namespace octavo
