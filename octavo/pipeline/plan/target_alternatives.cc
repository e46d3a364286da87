#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/pipeline/plan/target_alternatives_internal.h"
#include "octavo/quant/scaling.h"
#include "octavo/report/checkpoint_report.h"

namespace octavo {

// Determined by trying configure(): some targets support one scheme per model.
bool TargetAlternatives::can_mix(const QuantizedWeight& one, const QuantizedWeight& other) {
  const std::pair key{describe(one.scaling), describe(other.scaling)};
  if (const auto found = mixes_.find(key); found != mixes_.end()) return found->second;
  bool can = true;
  try {
    Json config = Json::object(), side;
    configure(target_, {.weights = {one, other}, .plain_modules = {}}, config, side);
  } catch (const Error&) {
    can = false;
  }
  return mixes_[key] = can;
}

std::vector<std::string_view> TargetAlternatives::of(const QuantizedWeight& weight) {
  std::vector<std::string_view> out;
  QuantizedWeight other = weight;
  for (const std::string_view name : advised_presets()) {
    other.scaling = preset(name);
    if (why_not(target_, other).empty() && can_mix(weight, other)) out.push_back(name);
  }
  return out;
}

}  // namespace octavo
