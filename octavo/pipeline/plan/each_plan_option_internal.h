// The options of a plan, each with its name in plan files: the one list of them. What writes plan
// files, reads them, and hashes what the bytes of a folder depend on, visits it.
#pragma once

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// visit(name, value), with a reference to the member of `options`, which may be const: a text, a
// flag, a number, a Dialect, where static scales come from, a list of texts, or of pairs of texts.
template <typename Options, typename Visit>
void each_plan_option(Options& options, const Visit& visit) {
  visit("recipe", options.recipe);
  visit("target", options.target);
  visit("format", options.format);
  visit("scale_rule", options.scale_rule);
  visit("arith", options.arith);
  visit("scale_policy", options.scale_policy);
  visit("tile", options.tile);
  visit("scale_format", options.scale_format);
  visit("include", options.include);
  visit("exclude", options.exclude);
  visit("recipe_for", options.recipe_for);
  visit("share", options.share);
  visit("bf16_scales", options.bf16_scales);
  visit("clamp_non_finite", options.clamp_non_finite);
  visit("shard_bytes", options.shard_bytes);
  visit("input_scales", options.input_scales);
  visit("kv_scales", options.kv_scales);
}

}  // namespace octavo
