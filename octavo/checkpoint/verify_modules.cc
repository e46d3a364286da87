// Which modules are quantized, and which are quantized alike.
#include <map>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify_internal.h"

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
    look(weight.found->weight.module, weight.scheme ? std::string(name_of(*weight.scheme))
                                                    : describe(weight.found->weight.scaling));
  for (const std::string& module : view.plain_linears) look(module, "not quantized");
}

void check_special_modules(const VerifyView& view, Findings& out) {
  for (const VerifiedWeight& weight : view.weights) {
    const QuantizedWeight& of = weight.found->weight;
    const std::vector<std::uint64_t> shape(of.shape.sizes().begin(), of.shape.sizes().end());
    const TensorRole role = role_of(of.name, shape, view.checkpoint.config());
    if (role.role == Role::embedding || role.role == Role::norm || role.role == Role::position)
      out.error({kV, kH, kS, kT}, of.module,
                text("it is ", role.why, ", which loaders take unquantized: leave it as it is"));
    if (role.role == Role::head && view.recognized.dialect == Dialect::deepseek)
      out.error({kV}, of.module, "it never quantizes the head in this spelling; leave it as it is");
    if (role.role == Role::router)
      out.warn({kV, kS, kT}, of.module,
               "it is a router, which many models' loaders take unquantized");
  }
}

}  // namespace octavo
