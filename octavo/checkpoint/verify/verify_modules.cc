// Rules on modules: special modules that must not be quantized, and one scheme for fused modules.
#include <map>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
void check_fused_schemes(const VerifyView& view, Findings& out) {
  struct First {
    std::string kind, module;
  };
  std::map<std::string, First> groups;
  const auto look = [&](const std::string& module, const std::string& kind) {
    const std::string key = fusion_key(module);
    if (key.empty()) return;
    const auto [found, is_first] = groups.insert({key, {kind, module}});
    if (is_first || found->second.kind == kind) return;
    out.error({kV, kS, kT}, module,
              text("it is ", kind, " and '", shown(found->second.module, 160), "' is ",
                   found->second.kind, ", and servers make one matrix of both"));
  };
  for (const VerifiedWeight& weight : view.weights)
    look(weight.found->weight.module, weight.scheme && *weight.scheme != Scheme::int4_group
                                          ? std::string(name_of(*weight.scheme))
                                          : describe(weight.found->weight.scaling));
  for (const std::string& module : view.plain_linears) look(module, "not quantized");
}

namespace {

// Does a config group name the head itself, and not only the class Linear?
bool is_named(const Json& words, const std::string& module) {
  for (const auto& [name, group] : words["config_groups"].members())
    for (const Json& one : group["targets"].elements()) {
      const std::string_view target = one.string_or("");
      if (target == module || (target.starts_with("re:") && is_target(target, module)) ||
          (!target.empty() && module.ends_with("." + std::string(target))))
        return true;
    }
  return false;
}

// lm_head, which servers treat separately. From their sources of 2026: vLLM's
// compressed_tensors.py, fp8.py and modelopt.py (August), SGLang's 0.5.23, TensorRT-LLM's LMHead.
void check_head(const VerifyView& view, const VerifiedWeight& weight, Findings& out) {
  const std::string& module = weight.found->weight.module;
  constexpr std::string_view kNever =
      "it never quantizes the head in this dialect; keep it unquantized";
  constexpr std::string_view kByName =
      "it takes the head for quantized only where a group of config.json names it ('lm_head' "
      "among the targets), and stops at its scales; keep it unquantized";
  switch (view.recognized.dialect) {
    case Dialect::deepseek:
      out.error({kV, kS, kT}, module, std::string(kNever));
      if (!view.words["modules_to_not_convert"].is_array() && !view.method.empty())
        out.silent_error({kH}, module,
                         "it leaves the head alone where config.json has no list "
                         "modules_to_not_convert, and loads codes as if they were weights");
      break;
    case Dialect::compressed_tensors:
      out.error({kT}, module, std::string(kNever));
      if (!is_named(view.words, module)) {
        out.error({kV, kS}, module, std::string(kByName));
        break;
      }
      out.warn({kV}, module, "versions before April 2026 take no head that is quantized");
      if (weight.scheme == Scheme::fp8_block)
        out.error({kS}, module, "it takes no head in blocks; use fp8-channel for it");
      break;
    case Dialect::modelopt:
      out.warn({kV, kS, kT}, module,
               "versions before 2026, and the code of some models, take no head that is "
               "quantized");
      break;
    case Dialect::comfyui:
    case Dialect::octavo:
    case Dialect::gguf:
      break;
  }
}

}  // namespace

void check_special_modules(const VerifyView& view, Findings& out) {
  for (const VerifiedWeight& weight : view.weights) {
    const QuantizedWeight& of = weight.found->weight;
    const std::vector<std::uint64_t> shape(of.shape.sizes().begin(), of.shape.sizes().end());
    const ModelTensorRole role = role_of(of.name, shape, view.checkpoint.config());
    if (role.role == Role::embedding || role.role == Role::norm || role.role == Role::position)
      out.error(
          {kV, kH, kS, kT}, of.module,
          text("it is ", role.why, ", which loaders expect unquantized: keep it unquantized"));
    if (role.role == Role::head) check_head(view, weight, out);
    if (role.role == Role::router)
      out.warn({kV, kS, kT}, of.module,
               "it is a router, which many models' loaders take unquantized");
  }
}

}  // namespace octavo
