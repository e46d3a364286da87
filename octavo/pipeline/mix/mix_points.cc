#include "octavo/pipeline/mix/mix_points_internal.h"

#include <algorithm>

#include "octavo/pipeline/mix/mix_errors_internal.h"

namespace octavo::mix {
namespace {

// Points of a frontier that are drawn and written; a large model has thousands.
constexpr std::size_t kPoints = 48;

class Pointing {
 public:
  Pointing(const Units& units, std::int64_t matrices)
      : units_(units), matrices_(static_cast<double>(std::max<std::int64_t>(1, matrices))) {}

  [[nodiscard]] double bits(std::uint64_t bytes, std::int64_t elements) const {
    return 8 * static_cast<double>(bytes) /
           static_cast<double>(std::max<std::int64_t>(1, elements));
  }
  [[nodiscard]] MixPoint of(const Mix& mix, std::string recipe = {}) const {
    MixPoint out{.recipe = std::move(recipe),
                 .bits_per_weight = bits(mix.bytes, units_.elements),
                 .bytes = mix.bytes + units_.other_bytes,
                 .error = mix.error / matrices_,
                 .elements = std::vector<std::int64_t>(units_.recipes.size(), 0)};
    for (std::size_t u = 0; u < units_.units.size(); ++u)
      out.elements[mix.choice[u]] += units_.units[u].elements;
    return out;
  }

 private:
  const Units& units_;
  double matrices_;
};

// Evenly spread over the bytes of the frontier, with both ends.
std::vector<MixPoint> sampled(const std::vector<Choices>& choices, const Frontier& frontier,
                              const Pointing& pointing) {
  std::vector<MixPoint> out;
  const std::size_t steps = frontier.steps.size();
  const std::uint64_t first = mix_of(choices, frontier.cheapest).bytes,
                      last = mix_at(choices, frontier, steps).bytes;
  std::vector<std::size_t> choice = frontier.cheapest;
  std::uint64_t bytes = first;
  std::size_t taken = 0;
  for (std::size_t i = 0; i <= steps; ++i) {
    const auto share = static_cast<double>(bytes - first) /
                       static_cast<double>(std::max<std::uint64_t>(1, last - first));
    const bool is_end = i == 0 || i == steps;
    if (is_end || share * static_cast<double>(kPoints - 1) >= static_cast<double>(taken)) {
      out.push_back(pointing.of(mix_of(choices, choice)));
      while (static_cast<double>(taken) <= share * static_cast<double>(kPoints - 1)) ++taken;
    }
    if (i == steps) break;
    const FrontierStep& step = frontier.steps[i];
    bytes = bytes - choices[step.unit][choice[step.unit]]->bytes +
            choices[step.unit][step.choice]->bytes;
    choice[step.unit] = step.choice;
  }
  return out;
}

}  // namespace

MixResult mix_result(const Units& units, const std::vector<Candidate>& candidates,
                     const std::vector<bool>& set, const std::vector<Choices>& choices,
                     const Frontier& frontier, const Mix& mix) {
  const Pointing pointing(units, matrices_of(units));
  MixResult out{.recipes = units.recipes};
  for (const Candidate& candidate : candidates)
    if (!candidate.plan) out.impossible.emplace_back(candidate.recipe, candidate.why_not);
  for (std::size_t i = 0; i < units.none(); ++i)
    if (!set[i]) out.left_out.push_back(units.recipes[i]);
  out.frontier = sampled(choices, frontier, pointing);
  // Of what is in no mix, too: by the errors that were measured.
  std::vector<Choices> all;
  for (const Unit& unit : units.units) {
    all.push_back(unit.choices);
    if (!all.back().back()) all.back().back() = Choice{.bytes = unit.bytes_before, .error = 0};
  }
  for (std::size_t i = 0; i < units.none(); ++i)
    if (const auto uniform = uniform_mix(all, i, units.none()))
      out.uniform.push_back(pointing.of(*uniform, units.recipes[i]));
  out.chosen = pointing.of(mix);
  for (std::size_t u = 0; u < units.units.size(); ++u) {
    const Unit& unit = units.units[u];
    const Choice& chosen = *choices[u][mix.choice[u]];
    MixUnit one{.name = unit.name,
                .elements = unit.elements,
                .recipe = units.recipes[mix.choice[u]],
                .bits_per_weight = pointing.bits(chosen.bytes, unit.elements),
                .error = chosen.error};
    for (std::size_t c = 0; c < unit.choices.size(); ++c)
      if (unit.choices[c]) {
        one.recipes.push_back(units.recipes[c]);
        one.errors.push_back(unit.choices[c]->error);
      }
    out.units.push_back(std::move(one));
  }
  return out;
}

}  // namespace octavo::mix
