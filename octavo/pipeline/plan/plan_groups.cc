// Decides groups that servers load as one: fused QKV, gate_up, the experts of a layer.
#include <map>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/plan_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

// Can it be a part of a fused matrix? A bias or a norm of the same module cannot.
bool is_member(const Decision& decision) {
  if (!decision.recipe.empty()) return true;
  return decision.role == Role::linear || decision.role == Role::expert_stack;
}

void settle(const CheckpointReader& source, std::vector<Decision*>& members) {
  const auto name = [&](const Decision& one) {
    return shown_tensor(source.tensors()[one.tensor].name());
  };
  const Decision *left = nullptr, *named = nullptr, *first = nullptr;
  for (const Decision* const one : members) {
    if (one->recipe.empty()) {
      if (left == nullptr) left = one;
      continue;
    }
    if (one->named && named == nullptr) named = one;
    if (first == nullptr) first = one;
    if (one->recipe != first->recipe)
      fail(ErrorCode::unsupported, kOp, name(*first), " would be ", first->recipe, " and ",
           name(*one), " ", one->recipe,
           ", and servers load both as one; give them one recipe (option recipe_for), or use the "
           "target "
           "octavo");
  }
  if (left == nullptr || first == nullptr) return;
  if (named != nullptr)
    fail(ErrorCode::unsupported, kOp, name(*named), " is asked for and ", name(*left),
         " stays unquantized (", left->why,
         "), and servers load both as one; include both (option include), exclude both (option "
         "exclude), or "
         "use the target octavo");
  const std::string why = text("servers load it as one with ", name(*left), ": ", left->why);
  for (Decision* const one : members) {
    if (one->recipe.empty()) continue;
    one->recipe.clear();
    one->left = SkipReason::with_its_group;
    one->why = why;
    one->actions.clear();
  }
}

}  // namespace

bool is_for_servers(Dialect target) {
  return target == Dialect::compressed_tensors || target == Dialect::deepseek ||
         target == Dialect::modelopt;
}

std::string shown_tensor(std::string_view name) { return text("tensor '", shown(name, 160), "'"); }

void decide_groups(const CheckpointReader& source, Dialect target,
                   std::vector<Decision>& decisions) {
  if (!is_for_servers(target)) return;
  std::map<std::string, std::vector<Decision*>> groups;
  for (Decision& decision : decisions) {
    if (!is_member(decision)) continue;
    std::string key = group_key(module_of(source.tensors()[decision.tensor].name()));
    if (!key.empty()) groups[std::move(key)].push_back(&decision);
  }
  for (auto& [key, members] : groups) settle(source, members);
}

}  // namespace octavo
