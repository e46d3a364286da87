#include "octavo/pipeline/mix/mix_options_internal.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/name_expression_internal.h"

namespace octavo::mix {
namespace {

using Names = std::vector<std::string_view>;

// Expressions that together find these names and no others: one where a short one can, else those
// of two halves.
void add_expressions(const NameExpressions& expressions, const Names& names,
                     const std::string& recipe,
                     std::vector<std::pair<std::string, std::string>>& out) {
  const std::string one = expressions.of({names.begin(), names.end()});
  if (!one.empty()) {
    out.emplace_back(one, recipe);
    return;
  }
  check(names.size() > 1, ErrorCode::unsupported, "mix", "the name '", shown(names.front(), 200),
        "' is too long for an expression; exclude it (option exclude)");
  const auto half = static_cast<std::ptrdiff_t>(names.size() / 2);
  add_expressions(expressions, {names.begin(), names.begin() + half}, recipe, out);
  add_expressions(expressions, {names.begin() + half, names.end()}, recipe, out);
}

}  // namespace

QuantizePlanOptions mixed_options(const CheckpointReader& source,
                                  const QuantizePlanOptions& options, const Units& units,
                                  const Mix& mix) {
  std::vector<Names> names(units.recipes.size());
  std::vector<std::int64_t> elements(units.recipes.size(), 0);
  for (std::size_t u = 0; u < units.units.size(); ++u) {
    elements[mix.choice[u]] += units.units[u].elements;
    for (const std::size_t tensor : units.units[u].tensors)
      names[mix.choice[u]].push_back(source.tensors()[tensor].name());
  }
  // Not "none", which is no preset: where all stay as they are, the first recipe of nothing.
  std::size_t most = 0;
  for (std::size_t i = 1; i < units.none(); ++i)
    if (elements[i] > elements[most]) most = i;
  QuantizePlanOptions out = options;
  out.recipe = units.recipes[most];
  Names all;
  for (const StoredTensor& tensor : source.tensors()) all.push_back(tensor.name());
  const NameExpressions expressions(all);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (i != most && !names[i].empty())
      add_expressions(expressions, names[i], units.recipes[i], out.recipe_for);
  return out;
}

void check_mixed(const CheckpointReader& source, const QuantizePlanOptions& options,
                 const Units& units, const Mix& mix) {
  const QuantizePlan plan = plan_quantize(source, options);
  std::vector<const TensorAction*> first(source.tensors().size(), nullptr);
  for (const TensorAction& action : plan.actions)
    if (first[action.tensor] == nullptr) first[action.tensor] = &action;
  for (std::size_t u = 0; u < units.units.size(); ++u) {
    const std::string& wanted = units.recipes[mix.choice[u]];
    for (const std::size_t tensor : units.units[u].tensors) {
      const TensorAction* const action = first[tensor];
      const std::string got = action != nullptr && action->quantize ? action->preset : "none";
      check(got == wanted, ErrorCode::internal, "mix", "'",
            shown(source.tensors()[tensor].name(), 160), "' is planned as ", shown(got),
            "; expected ", shown(wanted));
    }
  }
  const std::uint64_t expected = units.other_bytes + mix.bytes;
  check(plan.bytes_after <= expected, ErrorCode::internal, "mix", "the output is planned with ",
        plan.bytes_after, " bytes; expected ", expected, " at most");
}

}  // namespace octavo::mix
