#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "octavo/pipeline/mix/mix_solve_internal.h"

namespace octavo::mix {
namespace {

// Errors that mostly fall with bytes, in no order, some choices missing.
std::vector<Choices> random_units(unsigned seed, std::size_t units, std::size_t recipes) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> bytes(1, 40), percent(0, 99);
  std::vector<Choices> out;
  for (std::size_t u = 0; u < units; ++u) {
    Choices choices(recipes);
    for (std::size_t c = 0; c < recipes; ++c) {
      if (c > 0 && percent(random) < 20) continue;
      const int size = bytes(random);
      choices[c] = Choice{static_cast<std::uint64_t>(size),
                          (1 + percent(random) / 50.0) / static_cast<double>(size)};
    }
    out.push_back(std::move(choices));
  }
  return out;
}

// The least error within some bytes, by trying all mixes.
double least_error(const std::vector<Choices>& units, std::uint64_t bytes, std::size_t from = 0) {
  if (from == units.size()) return 0;
  double least = INFINITY;
  for (const auto& choice : units[from])
    if (choice && choice->bytes <= bytes)
      least = std::min(least, choice->error + least_error(units, bytes - choice->bytes, from + 1));
  return least;
}

std::uint64_t fewest_bytes(const std::vector<Choices>& units) {
  return mix_of(units, frontier_of(units).cheapest).bytes;
}

// A point of the frontier is a solution for its own bytes: nothing within them has less error.
TEST(MixSolve, EveryPointOfTheFrontierIsOptimal) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<Choices> units = random_units(seed, 6, 4);
    const Frontier frontier = frontier_of(units);
    for (std::size_t i = 0; i <= frontier.steps.size(); ++i) {
      const Mix mix = mix_at(units, frontier, i);
      EXPECT_NEAR(mix.error, least_error(units, mix.bytes), 1e-12) << seed << " " << i;
    }
  }
}

TEST(MixSolve, TheFrontierIsConvex) {
  const std::vector<Choices> units = random_units(5, 40, 5);
  const Frontier frontier = frontier_of(units);
  double before = INFINITY;
  for (std::size_t i = 0; i < frontier.steps.size(); ++i) {
    const Mix from = mix_at(units, frontier, i), to = mix_at(units, frontier, i + 1);
    ASSERT_GT(to.bytes, from.bytes);
    const double slope = (from.error - to.error) / static_cast<double>(to.bytes - from.bytes);
    EXPECT_GT(slope, 0);
    EXPECT_LE(slope, before * (1 + 1e-9));  // of sums that are rounded
    before = slope;
  }
}

// Between two points of the frontier no mix is better than the line between them, so that the loss
// is at most what the one step takes off that did not fit.
TEST(MixSolve, WithinABudgetTheLossIsAtMostOneStep) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<Choices> units = random_units(100 + seed, 6, 4);
    const Frontier frontier = frontier_of(units);
    const std::uint64_t first = fewest_bytes(units);
    double worst = 0;
    for (std::size_t i = 0; i < frontier.steps.size(); ++i)
      worst =
          std::max(worst, mix_at(units, frontier, i).error - mix_at(units, frontier, i + 1).error);
    for (std::uint64_t bytes = first; bytes < first + 60; bytes += 7) {
      const auto mix = best_within(units, frontier, bytes);
      ASSERT_TRUE(mix);
      EXPECT_LE(mix->bytes, bytes);
      EXPECT_LE(mix->error, least_error(units, bytes) + worst + 1e-12);
      // No single change that fits takes off any more.
      for (std::size_t u = 0; u < units.size(); ++u)
        for (const auto& choice : units[u])
          if (choice && mix->bytes - units[u][mix->choice[u]]->bytes + choice->bytes <= bytes) {
            EXPECT_GE(choice->error, units[u][mix->choice[u]]->error);
          }
    }
  }
}

TEST(MixSolve, BelowTheCheapestThereIsNone) {
  const std::vector<Choices> units = random_units(7, 5, 3);
  const Frontier frontier = frontier_of(units);
  const std::uint64_t least = fewest_bytes(units);
  EXPECT_FALSE(best_within(units, frontier, least - 1));
  EXPECT_EQ(best_within(units, frontier, least)->bytes, least);
  const auto all = best_within(units, frontier, 1U << 30);
  EXPECT_NEAR(all->error, least_error(units, 1U << 20), 1e-12);
}

TEST(MixSolve, UniformTakesAnotherWhereARecipeDoesNotFit) {
  const std::vector<Choices> units{{Choice{4, 2.0}, std::nullopt, Choice{16, 0.0}},
                                   {Choice{4, 1.0}, Choice{8, 0.5}, Choice{16, 0.0}},
                                   {Choice{3, 1.0}, std::nullopt, std::nullopt}};
  const auto one = uniform_mix(units, 1, 2);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->choice, (std::vector<std::size_t>{2, 1, 0}));
  EXPECT_EQ(one->bytes, 16U + 8 + 3);
  EXPECT_FALSE(uniform_mix(units, 1, std::nullopt));
}

}  // namespace
}  // namespace octavo::mix
