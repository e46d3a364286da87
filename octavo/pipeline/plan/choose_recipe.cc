#include "octavo/pipeline/plan/choose_recipe_internal.h"

#include <optional>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/plan_internal.h"

namespace octavo {
namespace {

// A model with a ragged matrix here and there keeps its recipe; one whose width does not fit it
// would be written at nearly its old size.
constexpr double kMayLeave = 0.1, kMax = 0.5;

// What a plan leaves unquantized because the recipe does not fit: weights, and their values.
struct Left {
  std::int64_t weights = 0, of = 0;
  double values = 0, of_values = 0;
  std::string first{}, why{};  // the first such weight

  Left(const CheckpointReader& source, const QuantizePlan& plan) {
    for (const TensorAction& action : plan.actions) {
      const bool left =
          action.left == SkipReason::impossible || action.left == SkipReason::with_its_group;
      if (!left && !action.quantize) continue;
      double count = 1;
      if (action.quantize)
        count = static_cast<double>(element_count(action.weight.shape));
      else
        for (const std::uint64_t size : source.tensors()[action.tensor].entry->shape)
          count *= static_cast<double>(size);
      ++of;
      of_values += count;
      if (!left) continue;
      ++weights;
      values += count;
      if (first.empty() && action.left == SkipReason::impossible) {
        first = source.tensors()[action.tensor].name();
        why = action.why;
      }
    }
  }
  // 0 where nothing but the user's wish leaves weights as they are.
  [[nodiscard]] double share() const { return first.empty() ? 0 : values / of_values; }
  [[nodiscard]] std::string text() const {
    return octavo::text(weights, " of ", of, " weights (", static_cast<int>(share() * 100 + 0.5),
                        " % of their values) unquantized");
  }
};

// Recipes of a target in the order in which they are tried, for a model without a recipe.
std::vector<std::string_view> default_recipes(Dialect target) {
  switch (target) {
    case Dialect::comfyui:
      return {"fp8"};
    case Dialect::compressed_tensors:
    case Dialect::modelopt:
      return {"fp8-block", "fp8-channel"};
    case Dialect::deepseek:
    case Dialect::octavo:
      return {"fp8-block"};
    case Dialect::gguf:
      return {"mxint8"};  // Q8_0
  }
  return {"fp8-block"};
}

// Recipes that may fit a model better than this one, of as few bits first.
std::vector<std::string_view> instead_of(const QuantizePlanOptions& options) {
  std::vector<std::string_view> out;
  if (preset(options.recipe).format.bits() == 4) out = {"nvfp4", "mxfp4"};
  out.emplace_back(options.target == Dialect::comfyui ? "fp8" : "fp8-channel");
  if (options.target == Dialect::deepseek) out = {"mxfp8"};  // of FP8 its loaders take blocks alone
  if (options.target == Dialect::gguf) out = {"mxint8"};
  std::erase(out, options.recipe);
  return out;
}

std::optional<QuantizePlan> try_plan(const QuantizePlanOptions& options, std::string_view recipe,
                                     const MakePlan& plan) {
  QuantizePlanOptions with = options;
  with.recipe = recipe;
  try {
    return plan(with);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
    return std::nullopt;  // it can hold no weight of the model, or not one that was asked for
  }
}

// With a recipe that leaves most of the model, the first note is what to use instead.
void advise(const CheckpointReader& source, const MakePlan& plan, QuantizePlan& made) {
  const Left left(source, made);
  if (left.share() <= kMax) return;
  std::string better;
  double least = left.share();
  for (const std::string_view recipe : instead_of(made.options)) {
    const auto other = try_plan(made.options, recipe, plan);
    if (!other) continue;
    const Left leaves(source, *other);
    if (leaves.share() >= least) continue;
    least = leaves.share();
    better = text("use recipe ", recipe, ", which leaves ",
                  leaves.weights == 0 ? std::string("none") : leaves.text());
    if (leaves.share() <= kMayLeave) break;
  }
  if (better.empty() && made.options.target == Dialect::deepseek)
    better = "use the target compressed-tensors with recipe fp8-channel";
  made.notes.insert(made.notes.begin(), text("recipe ", shown(made.options.recipe), " leaves ",
                                             left.text(), better.empty() ? "" : "; ", better, " (",
                                             shown_tensor(left.first), ": ", left.why, ")"));
}

}  // namespace

std::string_view first_recipe(Dialect target) { return default_recipes(target).front(); }

QuantizePlan choose_recipe(const CheckpointReader& source, const QuantizePlanOptions& options,
                           const MakePlan& plan) {
  const std::vector<std::string_view> recipes = default_recipes(options.target);
  if (!options.recipe.empty() || recipes.size() == 1) {
    QuantizePlanOptions with = options;
    if (with.recipe.empty()) with.recipe = recipes.front();
    QuantizePlan made = plan(with);
    advise(source, plan, made);
    return made;
  }
  std::optional<QuantizePlan> best;
  double least = 0;
  std::string why;  // not the first recipe
  for (const std::string_view recipe : recipes) {
    std::optional<QuantizePlan> made = try_plan(options, recipe, plan);
    const bool first = recipe == recipes.front();
    if (!made) {
      if (first) why = text(recipe, " fits none of it");
      continue;
    }
    const Left left(source, *made);
    if (first && left.share() > 0)
      why = text(recipe, " would leave ", left.text(), " (", shown_tensor(left.first), ": ",
                 left.why, ")");
    if (best && left.share() >= least) continue;
    best = std::move(made);
    least = left.share();
    if (least <= kMayLeave) break;
  }
  if (!best) {  // the first recipe's error says why
    QuantizePlanOptions with = options;
    with.recipe = recipes.front();
    return plan(with);
  }
  if (best->options.recipe != recipes.front())
    best->notes.insert(best->notes.begin(),
                       text("recipe ", best->options.recipe, " was chosen for this model: ", why));
  return std::move(*best);
}

}  // namespace octavo
