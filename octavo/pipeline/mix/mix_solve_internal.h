// Which recipe each unit of a model gets, within a number of bytes, so that the sum of errors is
// small: a knapsack with one choice for each unit. The frontier of a Lagrangian sweep (bytes
// against error) is optimal at each of its points; between two of them a greedy finish spends what
// is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace octavo::mix {

struct Choice {
  std::uint64_t bytes = 0;
  double error = 0;
};
// What a unit may be, in the order of the recipes; null: not that.
using Choices = std::vector<std::optional<Choice>>;

// One choice for every unit, by index, and what they come to.
struct Mix {
  std::vector<std::size_t> choice{};
  std::uint64_t bytes = 0;
  double error = 0;
};
[[nodiscard]] Mix mix_of(const std::vector<Choices>& units, std::vector<std::size_t> choice);

// From the fewest bytes on, a step at a time to what gains most for each byte. Every unit has a
// choice.
struct FrontierStep {
  std::size_t unit = 0, choice = 0;
};
struct Frontier {
  std::vector<std::size_t> cheapest{};  // choices before the first step; of equals less error
  std::vector<FrontierStep> steps{};
};
[[nodiscard]] Frontier frontier_of(const std::vector<Choices>& units);

// The mix after so many of the frontier's steps.
[[nodiscard]] Mix mix_at(const std::vector<Choices>& units, const Frontier& frontier,
                         std::size_t steps);

// The frontier as far as the bytes go, then greedily what still fits. Null where even the cheapest
// choices take more.
[[nodiscard]] std::optional<Mix> best_within(const std::vector<Choices>& units,
                                             const Frontier& frontier, std::uint64_t bytes);

// Every unit by one recipe, where it can be, else by `otherwise`. Null where a unit can be neither.
[[nodiscard]] std::optional<Mix> uniform_mix(const std::vector<Choices>& units, std::size_t recipe,
                                             std::optional<std::size_t> otherwise);

}  // namespace octavo::mix
