#include "octavo/report/mix_result.h"

#include <cmath>

#include "octavo/report/mix_result_internal.h"

namespace octavo {
namespace {

Json json_of_point(const MixPoint& point, const std::vector<std::string>& recipes) {
  Json elements = Json::object({});
  for (std::size_t i = 0; i < point.elements.size(); ++i)
    if (point.elements[i] > 0) elements.set(recipes[i], point.elements[i]);
  Json out = Json::object({{"bits_per_weight", point.bits_per_weight},
                           {"bytes", static_cast<std::int64_t>(point.bytes)},
                           {"error", point.error},
                           {"sqnr", sqnr_of(point)},
                           {"elements", std::move(elements)}});
  if (!point.recipe.empty()) out.set("recipe", point.recipe);
  return out;
}

Json json_of_points(const std::vector<MixPoint>& points, const std::vector<std::string>& recipes) {
  Json out = Json::array();
  for (const MixPoint& point : points) out.push(json_of_point(point, recipes));
  return out;
}

Json json_of_unit(const MixUnit& unit) {
  Json errors = Json::object({});
  for (std::size_t i = 0; i < unit.recipes.size(); ++i) errors.set(unit.recipes[i], unit.errors[i]);
  return Json::object({{"name", unit.name},
                       {"elements", unit.elements},
                       {"recipe", unit.recipe},
                       {"bits_per_weight", unit.bits_per_weight},
                       {"error", unit.error},
                       {"errors", std::move(errors)}});
}

Json json_of_texts(const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (const std::string& one : texts) out.push(one);
  return out;
}

}  // namespace

double sqnr_of(const MixPoint& point) { return -10 * std::log10(point.error); }

Json json_object_of(const MixResult& mix) {
  Json impossible = Json::object({}), units = Json::array();
  for (const auto& [recipe, why] : mix.impossible) impossible.set(recipe, why);
  for (const MixUnit& unit : mix.units) units.push(json_of_unit(unit));
  return Json::object({{"budget", mix.budget},
                       {"measure", mix.measure},
                       {"recipes", json_of_texts(mix.recipes)},
                       {"impossible", std::move(impossible)},
                       {"left_out", json_of_texts(mix.left_out)},
                       {"chosen", json_of_point(mix.chosen, mix.recipes)},
                       {"uniform", json_of_points(mix.uniform, mix.recipes)},
                       {"frontier", json_of_points(mix.frontier, mix.recipes)},
                       {"units", std::move(units)},
                       {"seconds", mix.seconds}});
}

std::string json_of(const MixResult& mix) { return json_object_of(mix).dump(); }

}  // namespace octavo
