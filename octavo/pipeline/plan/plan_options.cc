// Checks plan options before a plan is made: alone, and against the source's tensor names.
#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/choose_recipe_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/plan/recipe_scaling_internal.h"

namespace octavo {
namespace {

// In the order of StaticScaleSource.
constexpr std::array<std::string_view, 3> kSources{"none", "statistics", "one"};

struct MixedRecipe {
  std::string_view name, recipe, expression, recipe_there, elsewhere;
};
constexpr std::array<MixedRecipe, 2> kMixed{
    {{"experts-nvfp4", "nvfp4", R"(\.experts\.)", "nvfp4", "none"},
     {"attention-fp8", "nvfp4", R"(\.(self_attn|self_attention|attention|attn)\.)", "fp8-channel",
      ""}}};

const MixedRecipe* find_mixed(std::string_view name) {
  const auto at = std::find_if(kMixed.begin(), kMixed.end(),
                               [&](const MixedRecipe& one) { return one.name == name; });
  return at == kMixed.end() ? nullptr : &*at;
}

}  // namespace

std::vector<std::string> mixed_recipe_names() {
  std::vector<std::string> out;
  for (const MixedRecipe& one : kMixed) out.emplace_back(one.name);
  return out;
}

bool is_mixed_recipe(std::string_view name) { return find_mixed(name) != nullptr; }

QuantizePlanOptions spelled_out(QuantizePlanOptions options) {
  const MixedRecipe* const mixed = find_mixed(options.recipe);
  if (mixed == nullptr) return options;
  options.recipe = mixed->recipe;
  // ComfyUI has FP8 with one scale alone.
  const bool one_scale = options.target == Dialect::comfyui && mixed->recipe_there == "fp8-channel";
  options.recipe_for.emplace_back(mixed->expression, one_scale ? "fp8" : mixed->recipe_there);
  if (!mixed->elsewhere.empty()) options.recipe_for.emplace_back(".", mixed->elsewhere);
  return options;
}

std::string_view name_of(StaticScaleSource source) {
  return kSources[static_cast<std::size_t>(source)];
}

StaticScaleSource parse_static_scale_source(std::string_view name) {
  for (std::size_t i = 0; i < kSources.size(); ++i)
    if (kSources[i] == name) return static_cast<StaticScaleSource>(i);
  fail(ErrorCode::invalid_argument, "scales", "got '", shown(name),
       "'; expected none, statistics or one");
}

bool finds_any(const CheckpointReader& source, const NamePattern& pattern) {
  return std::any_of(source.tensors().begin(), source.tensors().end(),
                     [&](const StoredTensor& tensor) { return pattern.matches(tensor.name()); });
}

std::string found_nowhere(std::string_view option, const NamePattern& pattern) {
  return text("option ", option, ": '", shown(pattern.expression(), 80),
              "' is found in no tensor's name");
}

void check_included(const CheckpointReader& source, const NamePatterns& include) {
  for (const NamePattern& pattern : include.all())
    if (!finds_any(source, pattern))
      fail(ErrorCode::invalid_argument, "quantize", found_nowhere("include", pattern),
           "; inspect lists them");
}

void check_plan_options(const QuantizePlanOptions& options) {
  if (options.recipe.empty()) {
    QuantizePlanOptions with = options;
    with.recipe = first_recipe(options.target);
    return check_plan_options(with);
  }
  if (is_mixed_recipe(options.recipe)) return check_plan_options(spelled_out(options));
  (void)recipe_scaling(options.recipe, options);
  (void)NamePatterns("include", options.include);
  (void)NamePatterns("exclude", options.exclude);
  for (const auto& [expression, recipe] : options.recipe_for) {
    (void)NamePattern("recipe_for", expression);
    if (recipe != "none") (void)preset(recipe);
  }
}

void check_plan_options(const QuantizePlanOptions& options, const CheckpointReader& source) {
  check_plan_options(options);
  check_included(source, NamePatterns("include", options.include));
}

}  // namespace octavo
