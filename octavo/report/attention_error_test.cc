#include "octavo/report/attention_error.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"

namespace octavo {
namespace {

const AttentionRungError& of(const std::vector<AttentionRungError>& errors, AttentionRung rung) {
  for (const AttentionRungError& error : errors)
    if (error.rung == rung) return error;
  throw std::runtime_error("no such rung");
}

// The laws of FP8: 2.6 % of any number, scores off by sqrt(2) times that, weights by both.
TEST(AttentionError, StepsOfFp8) {
  const AttentionSampleInputs x = sample_attention(AttentionSample::normal, 2, 512, 64, 3);
  const auto errors = measure_attention(x.q.view(), x.k.view(), x.v.view(), {.rows = 32});
  const AttentionStages& fast = of(errors, AttentionRung::fast).stages;
  EXPECT_NEAR(fast.inputs, 0.026, 0.004);
  EXPECT_NEAR(fast.scores, 0.037, 0.006);
  EXPECT_NEAR(fast.weights, 0.045, 0.015);
  EXPECT_NEAR(fast.output, 0.052, 0.012);
  const AttentionStages& bf16 = of(errors, AttentionRung::bf16).stages;
  EXPECT_EQ(bf16.inputs, 0.0);
  EXPECT_LE(bf16.scores, 1e-6);
  EXPECT_LE(bf16.output, 4e-3);
  EXPECT_NEAR(of(errors, AttentionRung::balanced).stages.scores, 0.01, 0.005);
  // Weights of 1 / 512 are below what e4m3 has without a scale.
  EXPECT_GT(of(errors, AttentionRung::naive).stages.weights, 0.1);
}

TEST(AttentionError, GateAndChoices) {
  const AttentionSampleInputs x = sample_attention(AttentionSample::biased, 1, 1024, 64, 1);
  const auto errors = measure_attention(x.q.view(), x.k.view(), x.v.view(), {.rows = 24});
  EXPECT_EQ(of(errors, AttentionRung::bf16).failures, 0);
  EXPECT_EQ(of(errors, AttentionRung::automatic).failures, 0);
  EXPECT_GT(of(errors, AttentionRung::naive).failures, 0);
  EXPECT_GT(of(errors, AttentionRung::strict).failures, 0);  // FP8 inputs
  EXPECT_EQ(of(errors, AttentionRung::strict).failures_of_own, 0);
  EXPECT_GT(of(errors, AttentionRung::naive).failures_of_own, 0);
  EXPECT_EQ(of(errors, AttentionRung::bf16).elements, 24 * 64);
  EXPECT_GE(of(errors, AttentionRung::fast).cosine, 0.998);
  std::int64_t rows = 0;
  for (const std::int64_t count : of(errors, AttentionRung::automatic).rows_by_rung) rows += count;
  EXPECT_EQ(rows, 24);
}

// What the names promise.
TEST(AttentionError, Samples) {
  for (const AttentionSample sample : {AttentionSample::normal, AttentionSample::outlier,
                                       AttentionSample::peaked, AttentionSample::biased}) {
    EXPECT_EQ(parse_attention_sample(name_of(sample)), sample);
    const AttentionSampleInputs x = sample_attention(sample, 1, 400, 64, 5);
    const auto moments = [](const Tensor& tensor, std::size_t channel) {
      double sum = 0.0, squares = 0.0;
      for (std::size_t i = channel; i < 400 * 64; i += 64) {
        const std::uint32_t bits = std::uint32_t{tensor.span<std::uint16_t>()[i]} << 16;
        const auto value = static_cast<double>(std::bit_cast<float>(bits));
        sum += value / 400.0;
        squares += value * value / 400.0;
      }
      return std::pair{sum, std::sqrt(squares - sum * sum)};
    };
    EXPECT_NEAR(moments(x.q, 3).second, sample == AttentionSample::peaked ? 3.0 : 1.0, 0.5);
    EXPECT_NEAR(moments(x.k, 0).first, sample == AttentionSample::outlier ? 10.0 : 0.0, 0.3);
    EXPECT_NEAR(moments(x.k, 16).first, sample == AttentionSample::outlier ? -10.0 : 0.0, 0.3);
    EXPECT_NEAR(moments(x.k, 1).first, 0.0, 0.3);
    EXPECT_NEAR(moments(x.v, 1).first, sample == AttentionSample::biased ? 0.7 : 0.0, 0.3);
  }
  EXPECT_THROW((void)sample_attention(AttentionSample::normal, 1, 0, 64, 1), Error);
  EXPECT_THROW((void)parse_attention_sample("flat"), Error);
}

}  // namespace
}  // namespace octavo
