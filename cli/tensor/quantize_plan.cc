#include "cli/tensor/quantize_plan.h"

#include "cli/text/names.h"
#include "octavo/base/error.h"
#include "octavo/report/choose_format.h"
#include "octavo/round/policy_names.h"

namespace octavo::cli {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(text("[quantize] ", parts...));
}

// Names of an enumeration up to its last value.
template <typename Enum>
std::vector<std::string> names_up_to(Enum last) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(last); ++i)
    names.emplace_back(name_of(static_cast<Enum>(i)));
  return names;
}

Scaling recipe_argument(const std::string& typed) {
  const std::string base = typed.substr(0, typed.find(':'));
  const Scaling scaling = named_argument("[quantize] --recipe:", base, preset_names(),
                                         [](const std::string& name) { return preset(name); });
  if (base == typed) return scaling;
  try {
    return preset(typed);
  } catch (const Error&) {
    refuse("--recipe: got '", shown(typed), "', which is no element format that ", base,
           " is known with; say --recipe ", base, " --format FORMAT for any other");
  }
}

// A scale format implies the rule it needs, unless one is given.
void change_scale(const QuantizeArguments& options, ScaleSpec& scale) {
  if (options.scale) {
    scale.format = named_argument("[quantize] --scale:", *options.scale, scale_format_names(),
                                  parse_scale_format);
    const bool power_of_two = scale.format == ScaleFormat::e8m0;
    if (power_of_two != is_power_of_two_rule(scale.rule))
      scale.rule = power_of_two ? ScaleRule::rceil : ScaleRule::f32;
  }
  if (options.rule)
    scale.rule = named_argument("[quantize] --scale-rule:", *options.rule, scale_rule_names(),
                                parse_scale_rule);
  if (options.arith)
    scale.arith = named_argument("[quantize] --arith:", *options.arith, arith_names(), parse_arith);
  if (options.non_finite)
    scale.non_finite = named_argument("[quantize] --non-finite:", *options.non_finite,
                                      non_finite_names(), parse_non_finite);
  if (options.margin) scale.margin = *options.margin;
}

void change_encoding(const QuantizeArguments& options, Scaling& scaling) {
  EncodePolicy& encode = scaling.encode;
  if (options.rounding)
    encode.rounding = named_argument("[quantize] --rounding:", *options.rounding, rounding_names(),
                                     parse_rounding);
  if (options.overflow)
    encode.overflow = named_argument("[quantize] --overflow:", *options.overflow, overflow_names(),
                                     parse_overflow);
  if (options.nan) {
    encode.nan_input =
        named_argument("[quantize] --nan:", *options.nan, nan_input_names(), parse_nan_input);
    if (scaling.format.has_nan())
      refuse("--nan ", *options.nan, " says what NaN becomes in a format without NaN, and ",
             Element{DType::code, scaling.format}.name(), " has it; leave out --nan");
  }
  if ((options.seed || options.stochastic_bits) && encode.rounding != Rounding::stochastic)
    refuse(options.seed ? "--seed" : "--stochastic-bits", " needs --rounding stochastic, got ",
           name_of(encode.rounding));
  if (options.seed) encode.seed = *options.seed;
  if (options.stochastic_bits) encode.stochastic_bits = *options.stochastic_bits;
}

}  // namespace

std::vector<std::string> tile_names() {
  return {"tensor", "row", "column", "1x16", "1x32", "1x128", "128x128"};
}
std::vector<std::string> scale_format_names() { return names_up_to(ScaleFormat::e4m3_f32); }
std::vector<std::string> scale_rule_names() { return names_up_to(ScaleRule::even); }
std::vector<std::string> scale_policy_names() {
  return {"max", "mse", "4over6", "wmse", "modelopt_sweep", "percentile:99.9"};
}
std::vector<std::string> arith_names() { return names_up_to(Arith::modelopt_qtensor); }
std::vector<std::string> non_finite_names() { return names_up_to(NonFinite::saturate); }

Scaling plan_scaling(const QuantizeArguments& options) {
  if (!options.recipe && !options.format)
    refuse("got neither --recipe nor --format; say how to quantize, with --recipe one of ",
           listed(preset_names()));
  Scaling scaling = options.recipe ? recipe_argument(*options.recipe) : Scaling{};
  // "auto" is decided by the values (choose_format).
  if (options.format && *options.format != kMeasuredFormat)
    scaling.format = format_argument("[quantize] --format:", *options.format);
  if (options.tile)
    scaling.tile =
        named_argument("[quantize] --tile:", *options.tile, tile_names(),
                       [&](const std::string& name) { return parse_block(name, scaling.tile); });
  if (options.axis) scaling.axis = *options.axis;
  change_scale(options, scaling.scale);
  if (options.policy)
    named_argument("[quantize] --scale-policy:", *options.policy, scale_policy_names(),
                   [&](const std::string& name) { return parse_amax_policy(name, scaling), 0; });
  change_encoding(options, scaling);
  try {
    check_scaling(scaling);
  } catch (const Error& error) {
    refuse(reason_of(error));
  }
  return scaling;
}

}  // namespace octavo::cli
