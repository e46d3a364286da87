#include "octavo/pipeline/plan/target_alternatives_internal.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/loader_verdict.h"
#include "octavo/checkpoint/verify/verify_planned_internal.h"
#include "octavo/quant/scaling.h"
#include "octavo/report/checkpoint_report.h"

namespace octavo {
namespace {

std::string without_digits(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c < '0' || c > '9') out += c;
  return out;
}

}  // namespace

std::vector<std::string> TargetAlternatives::loaders_of(
    std::vector<QuantizedWeight> weights) const {
  const std::vector<Finding> findings =
      verify_planned(source_, target_, {.weights = std::move(weights), .plain_modules = {}});
  return verdict_of(planned_loaders(), findings).loads;
}

// Determined by trying: some targets support one scheme per model, which configure() refuses, and
// some loaders do not know a scheme.
bool TargetAlternatives::can_be(const QuantizedWeight& weight, const QuantizedWeight& other) const {
  QuantizedWeight beside = weight;  // another weight that keeps its scheme
  beside.module = text("beside.", weight.module);
  beside.name = text("beside.", weight.name);
  try {
    const std::vector<std::string> now = loaders_of({weight}), then = loaders_of({other, beside});
    return std::all_of(now.begin(), now.end(), [&](const std::string& loader) {
      return std::find(then.begin(), then.end(), loader) != then.end();
    });
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string_view> TargetAlternatives::of(const QuantizedWeight& weight) {
  const std::string key = text(describe(weight.scaling), "\n", to_string(weight.shape), "\n",
                               without_digits(weight.name));
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  std::vector<std::string_view> out;
  QuantizedWeight other = weight;
  for (const std::string_view name : advised_presets()) {
    other.scaling = preset(name);
    if (why_not(target_, other).empty() && can_be(weight, other)) out.push_back(name);
  }
  return known_[key] = out;
}

}  // namespace octavo
