// config_groups of compressed-tensors: which group a module is in.
#include "octavo/base/error.h"
#include "octavo/base/pattern/pattern.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {

bool is_target(std::string_view target, const std::string& module) {
  if (target == "Linear" || target == module) return true;
  if (!target.starts_with("re:")) return false;
  try {
    return Pattern(target.substr(3)).begins(module);
  } catch (const Error&) {
    return true;  // unparsable expression: assume a match
  }
}

ConfigGroups::ConfigGroups(const Json& words) {
  for (const auto& [name, group] : words["config_groups"].members())
    for (const Json& one : group["targets"].elements()) {
      const std::string_view target = one.string_or("");
      constexpr std::string_view kRegex = "re:";
      if (target == "Linear" && by_class_ == nullptr) by_class_ = &group;
      if (!target.starts_with(kRegex)) {
        exact_.emplace(target, &group);
        continue;
      }
      IgnoreExpression expression(target.substr(kRegex.size()));
      if (expression.is_read())
        expressions_.emplace(target, Expression{std::move(expression), &group});
      else if (unread_ == nullptr)
        unread_ = &group;
    }
}

const Json& ConfigGroups::of(const std::string& module) const {
  static const Json kNone;
  if (const auto found = exact_.find(module); found != exact_.end()) return *found->second;
  for (const auto& [target, one] : expressions_)
    if (one.expression.begins(module)) return *one.group;
  if (by_class_ != nullptr) return *by_class_;
  return unread_ != nullptr ? *unread_ : kNone;  // it may match: report nothing
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
