// Groups of modules in compressed-tensors' config_groups: which one a module is in.
#include "octavo/base/error.h"
#include "octavo/base/pattern.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {

bool is_target(std::string_view target, const std::string& module) {
  if (target == "Linear" || target == module) return true;
  if (!target.starts_with("re:")) return false;
  try {
    return Pattern(target.substr(3)).begins(module);
  } catch (const Error&) {
    return true;  // not read: nothing is said against it
  }
}

// As compressed-tensors and vLLM choose: a full name before an expression, an expression before a
// class, and of several expressions the first in the order of their letters.
const Json& group_for(const Json& words, const std::string& module) {
  static const Json kNone;
  const Json* best = &kNone;
  std::pair<int, std::string_view> rank{3, ""};
  for (const auto& [name, group] : words["config_groups"].members())
    for (const Json& one : group["targets"].elements()) {
      const std::string_view target = one.string_or("");
      if (!is_target(target, module)) continue;
      const std::pair<int, std::string_view> own{
          target == module ? 0 : (target.starts_with("re:") ? 1 : 2), target};
      if (own >= rank) continue;
      rank = own;
      best = &group;
    }
  return *best;
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
