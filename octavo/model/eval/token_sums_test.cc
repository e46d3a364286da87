#include "octavo/model/eval/token_sums_internal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace octavo::eval {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// In long double, all at once.
long double plain_normalizer(const std::vector<float>& logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  long double sum = 0;
  for (const float logit : logits)
    sum += std::exp(static_cast<long double>(logit) - static_cast<long double>(largest));
  return std::log(sum) + static_cast<long double>(largest);
}

std::vector<TokenSums> sums_of(const std::vector<std::vector<float>>& logits, std::int32_t target,
                               std::int64_t block) {
  std::vector<TokenSums> out(logits.size());
  std::vector<TokenSums*> places;
  for (TokenSums& one : out) places.push_back(&one);
  const auto ids = static_cast<std::int64_t>(logits[0].size());
  for (std::int64_t at = 0; at < ids; at += block) {
    std::vector<const float*> rows;
    for (const auto& row : logits) rows.push_back(row.data() + at);
    add_logits(rows, places, at, std::min(block, ids - at), target, logits.size() > 1);
  }
  return out;
}

std::vector<float> random_logits(std::size_t count, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

TEST(TokenSums, AreThoseOfTheWholeSoftmax) {
  for (const float scale : {0.01F, 3.0F, 300.0F}) {
    const auto p = random_logits(5000, 1, scale), q = random_logits(5000, 2, scale);
    const auto sums = sums_of({p, q}, 4999, 2048);
    const long double np = plain_normalizer(p), nq = plain_normalizer(q);
    // exp_of is right to 1e-14, sums of 5000 terms to 5000 * 2^-53 at worst.
    EXPECT_NEAR(sums[0].log_normalizer(), static_cast<double>(np), 1e-12);
    EXPECT_NEAR(sums[1].log_loss(), static_cast<double>(nq - static_cast<long double>(q[4999])),
                1e-12);
    EXPECT_EQ(sums[1].top, std::max_element(q.begin(), q.end()) - q.begin());
    long double kl = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const long double lp = static_cast<long double>(p[i]) - np,
                        lq = static_cast<long double>(q[i]) - nq;
      kl += std::exp(lp) * (lp - lq);
    }
    EXPECT_NEAR(divergence_of(sums[0], sums[1]), static_cast<double>(kl), 1e-11);
  }
}

TEST(TokenSums, DoNotDependOnBlocks) {
  const auto p = random_logits(5000, 3, 2.0F), q = random_logits(5000, 4, 2.0F);
  const auto all = sums_of({p, q}, 17, 5120);
  for (const std::int64_t block : {1024, 3072}) {
    const auto some = sums_of({p, q}, 17, block);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(some[i].sum, all[i].sum);
      EXPECT_EQ(some[i].divergence, all[i].divergence);
      EXPECT_EQ(some[i].target, all[i].target);
    }
  }
}

TEST(TokenSums, TheFirstOfEqualLogitsIsTop) {
  std::vector<float> logits(3000, 1.0F);
  logits[1500] = logits[2500] = 2.0F;
  EXPECT_EQ(sums_of({logits}, 0, 1024)[0].top, 1500);
}

TEST(TokenSums, TakeWhatIsNotFinite) {
  // Ids that are masked, more than a block of them: as if they were not there.
  std::vector<float> masked(3000, -kInf), rest(3000, -kInf);
  masked[2000] = 1.0F;
  masked[2001] = 1.0F;
  const auto one = sums_of({masked}, 2000, 1024)[0];
  EXPECT_NEAR(one.log_loss(), std::log(2.0), 1e-15);
  EXPECT_EQ(sums_of({masked, masked}, 2000, 1024)[1].divergence, 0.0);
  // The model gives no chance to what the original does.
  rest[2000] = 1.0F;
  const auto pair = sums_of({masked, rest}, 2000, 1024);
  EXPECT_EQ(divergence_of(pair[0], pair[1]), std::numeric_limits<double>::infinity());
  const auto other = sums_of({rest, masked}, 2000, 1024);
  EXPECT_NEAR(divergence_of(other[0], other[1]), std::log(2.0), 1e-15);
  // NaN and Inf stay seen.
  std::vector<float> bad(3000, 0.0F);
  bad[2999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sums_of({bad}, 0, 1024)[0].log_loss()));
  bad[2999] = kInf;
  EXPECT_TRUE(std::isnan(sums_of({bad}, 0, 1024)[0].log_loss()));
}

}  // namespace
}  // namespace octavo::eval
