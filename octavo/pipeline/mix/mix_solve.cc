#include <algorithm>

#include "octavo/pipeline/mix/mix_solve_internal.h"

namespace octavo::mix {
namespace {

// From one choice of a unit to the next on its convex hull.
struct Edge {
  std::size_t unit = 0, choice = 0, position = 0;
  double slope = 0;  // error that a byte takes off
};

double slope_of(const Choice& from, const Choice& to) {
  return (from.error - to.error) / static_cast<double>(to.bytes - from.bytes);
}

// Choices that no other beats with as few bytes, and of those the ones whose slopes fall: what the
// sweep visits for some price of a byte.
std::vector<std::size_t> hull_of(const Choices& choices) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (choices[i]) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (choices[a]->bytes != choices[b]->bytes) return choices[a]->bytes < choices[b]->bytes;
    return choices[a]->error < choices[b]->error;
  });
  std::vector<std::size_t> hull;
  for (const std::size_t next : order) {
    if (!hull.empty() && choices[next]->error >= choices[hull.back()]->error) continue;
    while (hull.size() > 1) {
      const Choice &before = *choices[hull[hull.size() - 2]], &last = *choices[hull.back()];
      if (slope_of(before, last) > slope_of(last, *choices[next])) break;
      hull.pop_back();
    }
    hull.push_back(next);
  }
  return hull;
}

// The one choice that takes off most error and still fits; of equals the one of fewer bytes, then
// the first.
std::optional<FrontierStep> best_step(const std::vector<Choices>& units, const Mix& mix,
                                      std::uint64_t bytes) {
  std::optional<FrontierStep> best;
  double most = 0;
  std::uint64_t cost = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const Choice& now = *units[u][mix.choice[u]];
    for (std::size_t c = 0; c < units[u].size(); ++c) {
      if (!units[u][c] || c == mix.choice[u]) continue;
      const Choice& other = *units[u][c];
      const double gain = now.error - other.error;
      const std::uint64_t after = mix.bytes - now.bytes + other.bytes;
      if (!(gain > 0) || after > bytes) continue;
      if (best && (gain < most || (gain == most && after >= cost))) continue;
      best = FrontierStep{u, c};
      most = gain;
      cost = after;
    }
  }
  return best;
}

}  // namespace

Mix mix_of(const std::vector<Choices>& units, std::vector<std::size_t> choice) {
  Mix out{.choice = std::move(choice)};
  for (std::size_t u = 0; u < units.size(); ++u) {
    out.bytes += units[u][out.choice[u]]->bytes;
    out.error += units[u][out.choice[u]]->error;
  }
  return out;
}

Frontier frontier_of(const std::vector<Choices>& units) {
  Frontier out;
  std::vector<Edge> edges;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const std::vector<std::size_t> hull = hull_of(units[u]);
    out.cheapest.push_back(hull.front());
    for (std::size_t i = 1; i < hull.size(); ++i)
      edges.push_back({u, hull[i], i, slope_of(*units[u][hull[i - 1]], *units[u][hull[i]])});
  }
  // Slopes of a unit fall along its hull, and equal ones keep their order.
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.slope > b.slope; });
  for (const Edge& edge : edges) out.steps.push_back({edge.unit, edge.choice});
  return out;
}

Mix mix_at(const std::vector<Choices>& units, const Frontier& frontier, std::size_t steps) {
  std::vector<std::size_t> choice = frontier.cheapest;
  for (std::size_t i = 0; i < steps; ++i) choice[frontier.steps[i].unit] = frontier.steps[i].choice;
  return mix_of(units, std::move(choice));
}

std::optional<Mix> best_within(const std::vector<Choices>& units, const Frontier& frontier,
                               std::uint64_t bytes) {
  Mix mix = mix_of(units, frontier.cheapest);
  if (mix.bytes > bytes) return std::nullopt;
  const auto take = [&](const FrontierStep& step) {
    const Choice &now = *units[step.unit][mix.choice[step.unit]],
                 &next = *units[step.unit][step.choice];
    mix.bytes = mix.bytes - now.bytes + next.bytes;
    mix.choice[step.unit] = step.choice;
  };
  for (const FrontierStep& step : frontier.steps) {
    const Choice &now = *units[step.unit][mix.choice[step.unit]],
                 &next = *units[step.unit][step.choice];
    // A unit whose step did not fit goes no further: its later steps take more.
    if (next.bytes < now.bytes || mix.bytes - now.bytes + next.bytes > bytes) continue;
    take(step);
  }
  while (const auto step = best_step(units, mix, bytes)) take(*step);
  return mix_of(units, std::move(mix.choice));
}

std::optional<Mix> uniform_mix(const std::vector<Choices>& units, std::size_t recipe,
                               std::optional<std::size_t> otherwise) {
  std::vector<std::size_t> choice;
  for (const Choices& unit : units) {
    // What the user named has one choice alone.
    std::size_t only = unit.size(), count = 0;
    for (std::size_t c = 0; c < unit.size(); ++c)
      if (unit[c]) {
        only = c;
        ++count;
      }
    if (unit[recipe])
      choice.push_back(recipe);
    else if (count == 1)
      choice.push_back(only);
    else if (otherwise && unit[*otherwise])
      choice.push_back(*otherwise);
    else
      return std::nullopt;
  }
  return mix_of(units, std::move(choice));
}

}  // namespace octavo::mix
