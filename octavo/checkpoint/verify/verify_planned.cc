#include "octavo/checkpoint/verify/verify_planned_internal.h"

#include <array>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

// Those of verify.cc that look at no file of the output; the names are the same. A static
// activation scale that the output would have is one that the source has.
constexpr std::array<Rule, 11> kRules{{{"method", "", check_method},
                                       {"support", "", check_support},
                                       {"scale-names", "", check_scale_names},
                                       {"groups", "", check_groups},
                                       {"divisible", "", check_divisible},
                                       {"stacks", "", check_stacks},
                                       {"fused-schemes", "", check_fused_schemes},
                                       {"activation-scales", "", check_activation_scales},
                                       {"special-modules", "", check_special_modules},
                                       {"ignore-list", "", check_ignore_list},
                                       {"ignore-list-too-wide", "", check_ignored_but_quantized}}};

}  // namespace

const std::vector<Loader>& planned_loaders() {
  static const std::vector<Loader> kServing{kV, kH, kS, kT};
  return kServing;
}

std::vector<Finding> verify_planned(const CheckpointReader& source, Dialect dialect,
                                    const QuantizedModel& model) {
  const VerifyOptions options{.loaders = planned_loaders(), .codes = false};
  Json config = source.config().is_object() ? source.config() : Json::object(), side;
  configure(dialect, model, config, side);
  const Json& words = quantization_config(config);
  VerifyView view{.checkpoint = source,
                  .options = options,
                  .words = words,
                  .method = words["quant_method"].string_or(""),
                  .groups = ConfigGroups(words),
                  .plain_linears = model.plain_modules};
  view.recognized.quantized = !model.weights.empty();
  view.recognized.dialect = dialect;
  view.recognized.weights.reserve(model.weights.size());
  for (const QuantizedWeight& weight : model.weights)
    view.recognized.weights.push_back({weight, dialect_tensors(dialect, weight)});
  for (const FoundWeight& found : view.recognized.weights) {
    VerifiedWeight weight{.found = &found, .scheme = scheme_of(found.weight.scaling)};
    for (const DialectTensor& tensor : found.tensors) {
      if (tensor.part == Part::codes) weight.codes = &tensor;
      if (tensor.part == Part::scales) weight.scales = &tensor;
      if (tensor.part == Part::tensor_scale) weight.tensor_scale = &tensor;
    }
    view.weights.push_back(weight);
  }
  Findings findings;
  findings.check_for(planned_loaders());
  for (const Rule& rule : kRules) {
    findings.begin(rule.id);
    rule.check(view, findings);
  }
  return findings.take();
}

}  // namespace octavo
