#include "octavo/report/sweep_result.h"

#include <cmath>

#include "octavo/base/json/json.h"

namespace octavo {
namespace {

Json bytes_json(std::uint64_t bytes) { return {static_cast<std::int64_t>(bytes)}; }

Json json_of_point(const SweepPoint& point, bool best) {
  Json out = Json::object({});
  Json settings = Json::object({});
  for (const auto& [option, value] : point.settings) settings.set(option, value);
  out.set("settings", std::move(settings));
  if (!point.why_not.empty()) {
    out.set("why_not", point.why_not);
    return out;
  }
  if (!point.scaling.empty()) out.set("scaling", point.scaling);
  out.set("bytes", bytes_json(point.bytes));
  out.set("bits_per_value", point.bits_per_value);
  out.set("relative_l2", point.relative_l2);
  out.set("sqnr", point.sqnr);
  out.set("worst_sqnr", point.worst_sqnr);
  out.set("cosine", point.cosine);
  out.set("seconds", point.seconds);
  out.set("uncounted", point.uncounted);
  out.set("best", best);
  return out;
}

bool is_comparable(const SweepPoint& point) {
  return point.why_not.empty() && point.uncounted == 0;
}

bool beats(const SweepPoint& one, const SweepPoint& other) {
  return is_comparable(one) && one.bits_per_value <= other.bits_per_value &&
         one.sqnr >= other.sqnr &&
         (one.bits_per_value < other.bits_per_value || one.sqnr > other.sqnr);
}

}  // namespace

std::string name_of(const SweepPoint& point) {
  std::string out;
  for (const auto& [option, value] : point.settings) {
    if (!out.empty()) out += ' ';
    if (option != "recipe" && option != "format") out += option + ' ';
    out += value;
  }
  return out;
}

std::vector<bool> best_of(const SweepResult& sweep) {
  std::vector<bool> out;
  for (const SweepPoint& point : sweep.points) {
    bool best = is_comparable(point);
    for (const SweepPoint& other : sweep.points) best = best && !beats(other, point);
    out.push_back(best);
  }
  return out;
}

std::string json_of(const SweepResult& sweep) {
  const std::vector<bool> best = best_of(sweep);
  Json points = Json::array();
  for (std::size_t i = 0; i < sweep.points.size(); ++i)
    points.push(json_of_point(sweep.points[i], best[i]));
  Json out = Json::object({{"title", sweep.title}, {"verb", "sweep"}, {"source", sweep.source}});
  if (!sweep.target.empty()) out.set("target", sweep.target);
  out.set("bytes_before", bytes_json(sweep.bytes_before));
  out.set("seconds_are", sweep.timed);
  out.set("points", std::move(points));
  return out.dump();
}

}  // namespace octavo
