// The table of verify's rules, and the loop over them.
#include "octavo/checkpoint/verify/verify.h"

#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "verify";
constexpr std::array<std::string_view, 6> kLoaders{"vllm",   "transformers", "sglang",
                                                   "trtllm", "comfyui",      "octavo"};
constexpr std::string_view kPartsRule = "parts";

// docs/numerics/dialects.md has the same list with reasons.
constexpr std::array<Rule, 40> kRules{{
    {"config", "there is a config.json that says which model it is, and not two things at once",
     check_config_there, true},
    {"weights", "there are weights", check_weights_there, true},
    {"layers", "layers and experts are all there, and have what the others have", check_layers,
     true},
    {"architecture", "every tensor of the model type in config.json is present", check_architecture,
     true},
    {"shapes", "tensors have the shapes that follow from config.json", check_shapes, true},
    {"unknown-tensors", "there is no tensor that the model type in config.json does not have",
     check_unknown_tensors, true},
    {"values", "what is not quantized has no NaN or Inf", check_values, true, true},
    {"sums", "files hold the bytes that octavo wrote", check_sums, true, true},
    {"orphans", "every scale belongs to a quantized weight", check_orphans, true},
    {"index", "the index names every tensor that its files have", check_index, true},
    {"quantized", "weights are codes with scales where config.json says so, and nowhere else",
     check_quantized, true},
    {"transforms", "nothing but codes and scales makes the weights", check_transforms, true},
    {"method", "the loader knows config.json's quant_method", check_method, true},
    {"support", "the loader supports this scheme in this dialect", check_support},
    {"scale-names", "scales have the name that the loader looks for", check_scale_names},
    {"sidecar-file", "hf_quant_config.json agrees with config.json and has the keys servers want",
     check_sidecar_file, true},
    {"file-metadata", "files say \"format\": \"pt\"", check_file_metadata},
    {"groups", "groups of modules are named as loaders match them", check_groups},
    {"code-types", "codes have the element type of the dialect", check_code_types},
    {"scale-types", "scales have a type that the loader takes", check_scale_types, true},
    {"scale-shapes", "scales have the shape that the loader takes", check_scale_shapes, true},
    {"divisible", "rows and columns are multiples of the tile", check_divisible},
    {"tensor-parallel", "they still are when matrices are split over devices",
     check_tensor_parallel},
    {"stacks", "experts are matrices where loaders want them so", check_stacks},
    {"activation-scales", "static activations, and the cache, have their scales",
     check_activation_scales, true},
    {"scale-numbers", "scales are finite and not negative or tiny", check_scale_numbers, true,
     true},
    {"zero-scales", "no scale is zero over codes that are not", check_zero_scales, false, true},
    {"codes", "no code is NaN or Inf", check_codes, false, true},
    {"magnitude", "codes use the range of their format", check_magnitude, false, true},
    {"plausible", "weight magnitudes are plausible, alone and beside other tensors",
     check_plausible, false, true},
    {"scale-bf16", "scales survive a loader that casts them to bf16", check_scale_bf16},
    {"scale-powers", "scales declared as powers of two are", check_scale_powers},
    {"second-level", "the second-level scale is the multiplier or divisor of its dialect, and fits",
     check_second_level, false, true},
    {"fused-scales", "what servers fuse into one matrix has one scale", check_fused_scales},
    {"fused-schemes", "what servers fuse has one scheme", check_fused_schemes},
    {"special-modules", "embeddings, heads and norms are not quantized", check_special_modules},
    {"ignore-list", "every unquantized matrix is on the ignore list, as each loader matches it",
     check_ignore_list},
    {"ignore-list-too-wide", "no quantized module is on the ignore list",
     check_ignored_but_quantized},
    {"declared-scheme", "config.json declares the scheme of each weight", check_declared_scheme},
    {"declared-keys", "config.json's other quantization keys are correct", check_config_keys},
}};

// Unquantized matrices that a model would hold in Linears.
void find_plain_linears(VerifyView& view) {
  for (const std::string& name : view.recognized.plain) {
    if (view.misfits.contains(std::string(module_of(name)))) continue;
    const StoredTensor& tensor = view.checkpoint.at(name);
    const Role role = role_of(name, tensor.entry->shape, view.checkpoint.config()).role;
    if (role == Role::expert_stack) view.plain_linears.emplace_back(holder_of(name));
    if (tensor.entry->shape.size() != 2 || !name.ends_with(".weight")) continue;
    if (role == Role::linear || role == Role::head || role == Role::router ||
        (role == Role::vision && name.find("embed") == std::string::npos))
      view.plain_linears.emplace_back(module_of(name));
  }
}

void look_at_weights(VerifyView& view) {
  for (const FoundWeight& found : view.recognized.weights) {
    VerifiedWeight weight{.found = &found, .scheme = scheme_of(found.weight.scaling)};
    for (const DialectTensor& tensor : found.tensors) {
      if (tensor.part == Part::codes) weight.codes = &tensor;
      if (tensor.part == Part::scales) weight.scales = &tensor;
      if (tensor.part == Part::tensor_scale) weight.tensor_scale = &tensor;
    }
    weight.reach = magnitude_of(view, weight);
    view.weights.push_back(weight);
  }
}

}  // namespace

std::string_view name_of(Loader loader) { return kLoaders[static_cast<std::size_t>(loader)]; }

std::vector<std::string> loader_names() { return {kLoaders.begin(), kLoaders.end()}; }

Loader parse_loader(std::string_view name) {
  const auto found = std::find(kLoaders.begin(), kLoaders.end(), name);
  check(found != kLoaders.end(), ErrorCode::invalid_argument, kOp, "got the loader '", shown(name),
        "'; expected one of vllm, transformers, sglang, trtllm, comfyui, octavo");
  return static_cast<Loader>(found - kLoaders.begin());
}

std::vector<VerifyRule> verify_rules() {
  std::vector<VerifyRule> rules{{kPartsRule, "codes and scales of every weight fit together"}};
  for (const Rule& rule : kRules) rules.push_back({rule.id, rule.what});
  rules.push_back({kAgainstRule, "weights are those of the model that it is checked against"});
  return rules;
}

void Findings::add(Severity severity, Loader loader, std::string_view tensor,
                   const std::string& message, bool silent) {
  if (std::find(loaders_.begin(), loaders_.end(), loader) == loaders_.end()) return;
  if (seen_.emplace(tensor, loader, message).second)
    findings_.push_back({severity, std::string(name_of(loader)), std::string(rule_),
                         std::string(tensor), message, silent});
}

void Findings::add(Severity severity, std::initializer_list<Loader> loaders,
                   std::string_view tensor, const std::string& message) {
  const bool of_all = of_data_ && loaders.size() == 4;
  const bool silent = of_all && severity == Severity::error;
  for (const Loader loader : loaders) add(severity, loader, tensor, message, silent);
  if (!of_all) return;
  for (const Loader loader : {kC, kO}) add(severity, loader, tensor, message, silent);
}

void Findings::silent_error(std::initializer_list<Loader> loaders, std::string_view tensor,
                            const std::string& message) {
  for (const Loader loader : loaders) add(Severity::error, loader, tensor, message, true);
}

void Findings::error_for_all(std::string_view tensor, const std::string& message) {
  findings_.push_back({Severity::error, "all", std::string(rule_), std::string(tensor), message});
}

std::vector<Finding> verify(const CheckpointReader& checkpoint, const VerifyOptions& options) {
  check(options.tensor_parallel >= 1, ErrorCode::invalid_argument, kOp, "got ",
        options.tensor_parallel, " devices to split matrices over; expected at least 1");
  check(
      !checkpoint.is_gguf(), ErrorCode::unsupported, kOp, "'", shown(checkpoint.path(), 200),
      "' is a GGUF file, which llama.cpp loads and these rules do not know; expected safetensors; "
      "compare its values with the model's: octavo compare");
  Findings findings;
  const Json& words = quantization_config(checkpoint.config());
  VerifyView view{.checkpoint = checkpoint,
                  .options = options,
                  .words = words,
                  .method = words["quant_method"].string_or(""),
                  .groups = ConfigGroups(words)};
  findings.begin(kPartsRule);
  Misfits misfits;
  try {
    view.recognized = recognize_all(checkpoint, &misfits);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
    findings.error_for_all("", reason_of(error));
    return findings.take();
  }
  findings.check_for(checked_loaders(options, view.recognized));
  for (const Misfit& misfit : misfits) {
    findings.error_for_all(misfit.name, misfit.reason);
    view.misfits.emplace(module_of(misfit.name));
  }
  view.names.insert(view.recognized.plain.begin(), view.recognized.plain.end());
  for (const FoundWeight& found : view.recognized.weights) view.names.insert(found.weight.name);
  view.architecture = expected_tensors(checkpoint.config(), view.names);
  look_at_sums(view);
  look_at_weights(view);
  find_plain_linears(view);
  for (const Rule& rule : kRules) {
    if (!view.recognized.quantized && !rule.of_any) continue;
    findings.begin(rule.id, rule.of_data);
    rule.check(view, findings);
  }
  return findings.take();
}

std::vector<Loader> checked_loaders(const VerifyOptions& options, const Recognized& recognized) {
  if (!options.loaders.empty()) return options.loaders;
  std::vector<Loader> out{kV, kH, kS, kT};
  if (recognized.quantized && recognized.dialect == Dialect::comfyui) out.push_back(kC);
  if (recognized.quantized && recognized.dialect == Dialect::octavo) out.push_back(kO);
  return out;
}

VerifyScope verify_scope(const CheckpointReader& checkpoint, const VerifyOptions& options) {
  VerifyScope out{.files = static_cast<std::int64_t>(checkpoint.files().size()),
                  .tensors = static_cast<std::int64_t>(checkpoint.tensors().size())};
  const Json& config = checkpoint.config();
  out.model_type = config["model_type"].string_or("");
  Recognized recognized;
  Misfits misfits;
  try {
    recognized = recognize_all(checkpoint, &misfits);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
    out.rules = 1;  // the dialect is unknown: only the rule `parts` applies
    return out;
  }
  out.weights = static_cast<std::int64_t>(recognized.weights.size());
  out.rules = 1 + std::count_if(kRules.begin(), kRules.end(), [&](const Rule& rule) {
                return recognized.quantized || rule.of_any;
              });
  std::set<std::string> names(recognized.plain.begin(), recognized.plain.end());
  for (const FoundWeight& found : recognized.weights) names.insert(found.weight.name);
  out.architecture = expected_tensors(config, names).has_value();
  for (const StoredTensor& tensor : checkpoint.tensors())
    if ((options.codes && options.every_byte) || tensor.entry->shape.size() < 2)
      out.bytes += tensor.nbytes();
  return out;
}

}  // namespace octavo
