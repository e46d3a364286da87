// Applies options to a recipe one by one, so that each can be refused with its reason.
#include <functional>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/recipe_scaling_internal.h"
#include "octavo/report/choose_format.h"

namespace octavo {

Scaling recipe_scaling(const std::string& recipe, const QuantizePlanOptions& options) {
  const bool asked_for = recipe == options.recipe;
  Scaling scaling = preset(recipe);
  std::vector<std::function<void(Scaling&)>> changes;
  if (recipe == "mxfp4" && options.scale_rule.empty() &&
      (options.arith.empty() || !is_peer(parse_arith(options.arith))))
    changes.emplace_back([](Scaling& to) { to.scale.rule = ScaleRule::even; });
  // Q8_0 has quotients in f16; powers of two would cost half a bit.
  if (recipe == "mxint8" && options.target == Dialect::gguf && options.scale_format.empty() &&
      options.scale_rule.empty() && options.arith.empty())
    changes.emplace_back([](Scaling& to) {
      to.scale.format = ScaleFormat::f16;
      to.scale.rule = ScaleRule::f32;
    });
  if (!options.format.empty() && recipe.find(':') == std::string::npos)
    changes.emplace_back([&](Scaling& to) {
      // `auto` is decided where values are read; here the recipe must have both formats.
      const bool later = options.format == kMeasuredFormat;
      const Scaling changed = preset(recipe + ":" + (later ? "e5m2" : options.format));
      if (!later) to.format = changed.format;
    });
  if (!options.tile.empty())
    changes.emplace_back([&](Scaling& to) { to.tile = parse_block(options.tile, to.tile); });
  if (!options.scale_format.empty())
    changes.emplace_back([&](Scaling& to) {
      to.scale.format = parse_scale_format(options.scale_format);
      if (to.scale.format == ScaleFormat::e8m0 && !is_power_of_two_rule(to.scale.rule))
        to.scale.rule = ScaleRule::rceil;  // e8m0 needs power-of-two scales
    });
  if (!options.scale_rule.empty())
    changes.emplace_back(
        [&](Scaling& to) { to.scale.rule = parse_scale_rule(options.scale_rule); });
  if (!options.arith.empty())
    changes.emplace_back([&](Scaling& to) { to.scale.arith = parse_arith(options.arith); });
  if (!options.scale_policy.empty())
    changes.emplace_back([&](Scaling& to) { parse_amax_policy(options.scale_policy, to); });
  for (const auto& change : changes) {
    Scaling changed = scaling;
    try {
      change(changed);
      check_scaling(changed);
      scaling = changed;
    } catch (const Error& error) {
      if (asked_for)
        fail(error.code(), "quantize", "recipe ", shown(recipe), ": ", reason_of(error));
    }
  }
  if (scaling.tile == Tile{0, 0} && scaling.policy != AmaxPolicy::max)
    fail(ErrorCode::unsupported, "quantize", "recipe ", shown(recipe), " with policy ",
         name_of(scaling.policy),
         " would need a whole tensor in memory; use fp8-channel or fp8-block, or policy max");
  return scaling;
}

Scaling working_scaling(const Scaling& scaling, const QuantizePlanOptions& options) {
  Scaling working = scaling;
  const ScaleSpec& scale = scaling.scale;
  if (options.bf16_scales && scale.format == ScaleFormat::f32 &&
      !is_power_of_two_rule(scale.rule) && !is_peer(scale.arith))
    working.scale.format = ScaleFormat::bf16;
  return working;
}

}  // namespace octavo
