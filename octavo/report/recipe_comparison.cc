#include "octavo/report/recipe_comparison.h"

#include <cmath>
#include <utility>

#include "octavo/base/json/json.h"
#include "octavo/report/median_internal.h"

namespace octavo {
namespace {

Json bytes_json(std::uint64_t bytes) { return {static_cast<std::int64_t>(bytes)}; }

Json json_of_tensor(const TensorReport& tensor) {
  return Json::object({{"name", tensor.name},
                       {"preset", tensor.preset},
                       {"bytes_after", bytes_json(tensor.bytes_after)},
                       {"sqnr", tensor.metrics.sqnr},
                       {"expected_sqnr", tensor.expected_sqnr},
                       {"cosine", tensor.metrics.cosine}});
}

Json json_of_outcome(const RecipeOutcome& outcome) {
  Json out = Json::object({{"recipe", outcome.recipe}});
  if (!outcome.why_not.empty()) {
    out.set("why_not", outcome.why_not);
    return out;
  }
  const CheckpointReport& report = outcome.report;
  out.set("bytes_after", bytes_json(report.bytes_after));
  out.set("bits_per_weight", report.bits_per_weight);
  out.set("median_sqnr", median_sqnr(report));
  out.set("expected_sqnr", median_expected_sqnr(report));
  Json worst = Json::array();
  for (const std::size_t i : report.worst(10)) worst.push(report.tensors[i].name);
  out.set("worst", std::move(worst));
  Json loads = Json::array(), fails = Json::object();
  for (const std::string& loader : outcome.loads) loads.push(loader);
  for (const auto& [loader, reason] : outcome.does_not_load) fails.set(loader, reason);
  out.set("loads", std::move(loads));
  out.set("does_not_load", std::move(fails));
  Json tensors = Json::array();
  for (const TensorReport& tensor : report.tensors)
    if (tensor.measured) tensors.push(json_of_tensor(tensor));
  out.set("tensors", std::move(tensors));
  return out;
}

}  // namespace

double median_sqnr(const CheckpointReport& report) {
  std::vector<double> sqnrs;
  for (const TensorReport& tensor : report.tensors)
    if (tensor.measured) sqnrs.push_back(order_of(tensor));
  return median(std::move(sqnrs));
}

double median_expected_sqnr(const CheckpointReport& report) {
  std::vector<double> sqnrs;
  for (const TensorReport& tensor : report.tensors)
    if (tensor.measured && !std::isnan(tensor.expected_sqnr)) sqnrs.push_back(tensor.expected_sqnr);
  return median(std::move(sqnrs));
}

std::string json_of(const RecipeComparison& comparison) {
  Json recipes = Json::array();
  for (const RecipeOutcome& outcome : comparison.recipes) recipes.push(json_of_outcome(outcome));
  return Json::object({{"title", comparison.title},
                       {"verb", "compare recipes"},
                       {"source", comparison.source},
                       {"target", comparison.target},
                       {"bytes_before", bytes_json(comparison.bytes_before)},
                       {"seconds", comparison.seconds},
                       {"recipes", std::move(recipes)}})
      .dump();
}

}  // namespace octavo
