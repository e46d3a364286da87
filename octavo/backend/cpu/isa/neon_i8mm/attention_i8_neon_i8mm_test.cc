// SMMLA's scores are SDOT's, bit for bit, and those of plain sums of integers.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "octavo/backend/cpu/isa/neon_i8mm/neon_i8mm_internal.h"
#include "octavo/base/cpu_features.h"

namespace octavo::cpu {
namespace {

constexpr int kRows = 8, kCols = 12;

// Upper and lower limbs, [rows][depth] each.
struct Limbs {
  std::vector<std::int8_t> high, low;
};

Limbs limbs_of(int rows, std::int64_t depth, bool extreme, std::mt19937& random) {
  std::uniform_int_distribution<int> high(-127, 127), low(-64, 63);
  Limbs limbs;
  for (std::int64_t i = 0; i < rows * depth; ++i) {
    limbs.high.push_back(static_cast<std::int8_t>(extreme ? 127 : high(random)));
    limbs.low.push_back(static_cast<std::int8_t>(extreme ? -64 : low(random)));
  }
  return limbs;
}

// [depth / step][rows][step], the upper limbs and then the lower ones.
std::vector<std::int8_t> panel_of(const Limbs& limbs, int rows, std::int64_t depth, int step) {
  std::vector<std::int8_t> panel;
  for (const std::vector<std::int8_t>* from : {&limbs.high, &limbs.low})
    for (std::int64_t k = 0; k < depth; k += step)
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < step; ++i)
          panel.push_back((*from)[static_cast<std::size_t>(r * depth + k + i)]);
  return panel;
}

TEST(AttentionI8Neon, ScoresAreThoseOfDotProducts) {
  if (!cpu_features().i8mm) GTEST_SKIP() << "this CPU has no int8 matrix products";
  std::mt19937 random(7);
  std::uniform_real_distribution<float> unit(0.001F, 2.0F);
  for (const std::int64_t depth : {8, 40, 128, 1024})
    for (const bool extreme : {false, true})
      for (const std::int64_t runs : {1, 2}) {
        const Limbs a = limbs_of(kRows, depth, extreme, random),
                    b = limbs_of(kCols, depth, extreme, random);
        std::vector<float> a_unit, b_unit;
        for (int i = 0; i < kRows; ++i) a_unit.push_back(unit(random));
        for (int j = 0; j < kCols; ++j) b_unit.push_back(unit(random));
        const auto scores = [&](int step, void (*run)(const MicrokernelJob&)) {
          const std::vector<std::int8_t> left = panel_of(a, kRows, depth, step),
                                         right = panel_of(b, kCols, depth, step);
          std::vector<float> sums(kRows * kCols, 77.0F);
          run({.a = reinterpret_cast<const std::byte*>(left.data()),
               .b = reinterpret_cast<const std::byte*>(right.data()),
               .run = depth,
               .runs = runs,
               .a_scale = a_unit.data(),
               .b_scale = b_unit.data(),
               .sums = sums.data(),
               .pitch = kCols});
          return sums;
        };
        const std::vector<float> got = scores(8, neon_i8mm_score);
        EXPECT_EQ(got, scores(4, neon_dot_score)) << "depth " << depth << ", " << runs << " limbs";
        for (int i = 0; i < kRows; ++i)
          for (int j = 0; j < kCols; ++j) {
            std::int64_t sum = 0;
            for (std::int64_t k = 0; k < depth; ++k) {
              const auto at = static_cast<std::size_t>(i * depth + k),
                         there = static_cast<std::size_t>(j * depth + k);
              sum += 128 * a.high[at] * b.high[there];
              if (runs > 1) sum += a.high[at] * b.low[there] + a.low[at] * b.high[there];
            }
            const auto i_at = static_cast<std::size_t>(i), j_at = static_cast<std::size_t>(j);
            ASSERT_EQ(got[i_at * kCols + j_at],
                      static_cast<float>(sum) * (b_unit[j_at] * a_unit[i_at]))
                << "depth " << depth << ", " << i << ", " << j;
          }
      }
}

}  // namespace
}  // namespace octavo::cpu
