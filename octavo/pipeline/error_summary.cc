#include "octavo/pipeline/error_summary_internal.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "octavo/report/checkpoint_report.h"
#include "octavo/report/expected_error_internal.h"
#include "octavo/report/median_internal.h"

namespace octavo {
namespace {

struct OfRecipe {
  std::string recipe, worst;
  std::vector<double> sqnrs{};
  double bytes = 0, elements = 0, worst_sqnr = INFINITY, normal = NAN, cosine = 1;
};

Json rounded(double value, double per_unit) {
  return std::isfinite(value) ? Json(std::round(value * per_unit) / per_unit) : Json();
}

Json number_or_word(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::optional<double> read_number(const Json& kept) {
  if (kept.is_number()) return kept.number_or(0);
  const std::string_view word = kept.string_or("");
  if (word == "nan") return NAN;
  if (word == "inf") return INFINITY;
  if (word == "-inf") return -INFINITY;
  return std::nullopt;
}

}  // namespace

Json error_ranges(const QuantizePlan& plan, const std::vector<ActionResult>& results) {
  ErrorRanges ranges;
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    if (plan.actions[i].quantize)
      ranges.add(plan.actions[i].weight.name, results[i].error.metrics());
  Json out = Json::object();
  for (const MetricRange& one : ranges.metrics)
    out.set(one.metric, Json::object({{"least", number_or_word(one.least)},
                                      {"least_of", one.least_of},
                                      {"greatest", number_or_word(one.greatest)},
                                      {"greatest_of", one.greatest_of}}));
  out.set("uncounted", ranges.uncounted);
  if (ranges.uncounted > 0) out.set("uncounted_of", ranges.uncounted_of);
  return out;
}

std::optional<ErrorRanges> read_error_ranges(const Json& kept) {
  if (!kept.is_object()) return std::nullopt;
  ErrorRanges out{.uncounted = kept["uncounted"].integer_or(0),
                  .uncounted_of = std::string(kept["uncounted_of"].string_or(""))};
  for (const NamedMetric& metric : named_metrics()) {
    const Json& one = kept[metric.name];
    const auto least = read_number(one["least"]), greatest = read_number(one["greatest"]);
    if (!least || !greatest) return std::nullopt;
    out.metrics.push_back({std::string(metric.name), *least, *greatest,
                           std::string(one["least_of"].string_or("")),
                           std::string(one["greatest_of"].string_or(""))});
  }
  return out;
}

Json error_summary(const QuantizePlan& plan, const std::vector<ActionResult>& results) {
  std::vector<OfRecipe> all;
  ExpectedErrors expected;
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    const TensorAction& action = plan.actions[i];
    if (!action.quantize) continue;
    auto of = std::find_if(all.begin(), all.end(),
                           [&](const OfRecipe& known) { return known.recipe == action.preset; });
    if (of == all.end()) {
      of = all.insert(of, OfRecipe{.recipe = action.preset, .worst = action.weight.name});
      of->normal = expected.of(action.weight.scaling, action.weight.shape.sizes()).sqnr;
    }
    TensorReport tensor;
    tensor.metrics = results[i].error.metrics();
    of->bytes += static_cast<double>(bytes_after(action));
    of->elements += static_cast<double>(element_count(action.weight.shape));
    of->cosine = std::min(of->cosine, tensor.metrics.cosine);
    const double sqnr = order_of(tensor);
    of->sqnrs.push_back(sqnr);
    if (sqnr < of->worst_sqnr) {
      of->worst_sqnr = sqnr;
      of->worst = action.weight.name;
    }
  }
  Json out = Json::array();
  for (OfRecipe& of : all) {
    const auto tensors = static_cast<std::int64_t>(of.sqnrs.size());
    out.push(Json::object({{"recipe", of.recipe},
                           {"tensors", tensors},
                           {"bits", rounded(8 * of.bytes / of.elements, 100)},
                           {"sqnr_median", rounded(median(std::move(of.sqnrs)), 100)},
                           {"sqnr_worst", rounded(of.worst_sqnr, 100)},
                           {"worst", of.worst},
                           {"sqnr_normal", rounded(of.normal, 10)},
                           {"cosine_lowest", rounded(of.cosine, 1e6)}}));
  }
  return out;
}

}  // namespace octavo
