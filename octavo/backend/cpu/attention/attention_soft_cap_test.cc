#include "octavo/backend/cpu/attention/attention_soft_cap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/backend/attention_job.h"

namespace octavo::cpu {
namespace {

// Scores are in units of log2: cap and score are multiplied by log2(e), which changes no quotient.
TEST(AttentionSoftCap, IsWithinItsErrorOfTanh) {
  for (const double natural : {1e-30, 1e-3, 0.7, 30.0, 50.0, 1e6, 1e30}) {
    const SoftCap by(natural);
    const double cap = natural * std::numbers::log2e;
    // From 2^-40 of the cap, where tanh is the identity, to 2^10 of it, where it is one.
    for (int i = 0; i < 200000; ++i) {
      const double size = cap * std::exp2(i / 4000.0 - 40.0);
      for (const double wanted : {size, -size}) {
        const auto score = static_cast<float>(wanted);
        if (std::abs(score) < 0x1p-100F || !std::isfinite(score)) continue;
        const double exact = cap * std::tanh(static_cast<double>(score) / cap);
        ASSERT_NEAR(static_cast<double>(soft_capped(by, score)), exact,
                    kSoftCapError * std::abs(exact))
            << "cap " << natural << ", score " << score;
      }
    }
  }
}

// 1 - tanh^2 has its own relative error, as far as an exponential of f32 reaches: its argument, up
// to 2 |z| log2(e), is rounded twice, 2^-24 of it each, and 2^x to 2^-22.
TEST(AttentionSoftCap, SlopeIsThatOfTanh) {
  const SoftCap by(2.0);
  const double cap = 2.0 * std::numbers::log2e;
  for (int i = -40000; i <= 40000; ++i) {
    const auto score = static_cast<float>(cap * i / 1000.0);
    const double z = static_cast<double>(score) / cap, wide = std::cosh(z),
                 exact = 1.0 / (wide * wide);
    ASSERT_NEAR(static_cast<double>(slope_of_soft_cap(by, score)), exact,
                (0x1p-20 + 0x1p-22 * std::abs(z)) * exact + 0x1p-120)
        << z;
  }
}

TEST(AttentionSoftCap, NonFiniteScores) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const SoftCap by(50.0);
  EXPECT_TRUE(std::isnan(soft_capped(by, kInfinity)));
  EXPECT_TRUE(std::isnan(soft_capped(by, -kInfinity)));
  // Finite, although it is not over the cap.
  EXPECT_NEAR(soft_capped(SoftCap(1e-30), -1e30F), -1e-30F * 1.442695F, 1e-35F);
  EXPECT_TRUE(std::isnan(soft_capped(by, std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(soft_capped(by, 0.0F), 0.0F);
  EXPECT_EQ(slope_of_soft_cap(by, kInfinity), 0.0F);
}

}  // namespace
}  // namespace octavo::cpu
