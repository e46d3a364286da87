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

}  // namespace

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
