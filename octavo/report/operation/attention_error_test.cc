#include "octavo/report/operation/attention_error.h"

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
  EXPECT_EQ(rows, 1024);  // all of them: what is compared is a sample
}

// Scores are normal with a deviation near 1, and what rounding adds hardly depends on them. A cap
// of 1/2 multiplies it by 1 / cosh(u)^2, u = 2 score, whose root mean square is 0.51, and leaves
// scores with one of 0.40: what is relative to them grows by 1.27; by 0.1 more or less, because a
// row's deviation is |q| / 8, 9 % more or less than 1. Sinks do not change scores.
TEST(AttentionError, SoftCapsAndSinks) {
  const AttentionSampleInputs x = sample_attention(AttentionSample::biased, 2, 512, 64, 3);
  const std::vector<float> sinks = {-1.0F, 4.0F};
  const auto measured = [&](double cap, const View& of_heads) {
    return measure_attention(x.q.view(), x.k.view(), x.v.view(),
                             {.soft_cap = cap, .sinks = of_heads, .rows = 32});
  };
  const auto plain = measured(0.0, {}), capped = measured(0.5, {}),
             shared = measured(0.5, view_of(std::span<const float>(sinks)));
  EXPECT_NEAR(of(capped, AttentionRung::strict).stages.scores /
                  of(plain, AttentionRung::strict).stages.scores,
              1.27, 0.1);
  EXPECT_NEAR(of(shared, AttentionRung::strict).stages.scores,
              of(capped, AttentionRung::strict).stages.scores, 0.01);
  for (const auto& errors : {capped, shared})
    for (const AttentionRung rung : {AttentionRung::bf16, AttentionRung::automatic})
      EXPECT_EQ(of(errors, rung).failures, 0);
  EXPECT_NE(of(shared, AttentionRung::bf16).max_abs, of(capped, AttentionRung::bf16).max_abs);
}

// A sampled row has the same bits and the same rung as in a call on all rows.
TEST(AttentionError, AutoIsThatOfAllRows) {
  const AttentionSampleInputs x = sample_attention(AttentionSample::normal, 1, 1024, 64, 2);
  AttentionReport report;
  const Tensor all =
      attention(x.q, x.k, x.v, {.rtol = 0.1, .atol = 0.1, .out = DType::f32, .report = &report});
  const Tensor exact = attention(x.q, x.k, x.v, {.rung = AttentionRung::exact, .out = DType::f64});
  double largest = 0.0;
  for (const std::int64_t row : {0, 341, 682, 1023})
    for (std::int64_t e = 0; e < 64; ++e) {
      const auto at = static_cast<std::size_t>(row * 64 + e);
      largest = std::max(
          largest, std::abs(static_cast<double>(all.span<float>()[at]) - exact.span<double>()[at]));
    }
  const auto errors =
      measure_attention(x.q.view(), x.k.view(), x.v.view(), {.rtol = 0.1, .atol = 0.1, .rows = 4});
  const AttentionRungError& automatic = of(errors, AttentionRung::automatic);
  EXPECT_EQ(automatic.max_abs, largest);
  ASSERT_NE(report.choices.front().rung, AttentionRung::bf16);
  EXPECT_GT(automatic.stages.inputs, 0.001);
  EXPECT_GT(automatic.stages.scores, 0.001);
}

void set_nan(Tensor& bf16, std::int64_t at) {
  bf16.span<std::uint16_t>()[static_cast<std::size_t>(at)] = 0x7FC0;
}

// An expected NaN is no failure; an unexpected one is not hidden by later values.
TEST(AttentionError, NanStaysAndIsCompared) {
  AttentionSampleInputs x = sample_attention(AttentionSample::normal, 1, 64, 64, 2);
  set_nan(x.q, 5 * 64 + 3);
  const auto wanted = measure_attention(x.q.view(), x.k.view(), x.v.view(), {.rows = 0});
  EXPECT_EQ(of(wanted, AttentionRung::bf16).failures, 0);
  EXPECT_LE(of(wanted, AttentionRung::bf16).max_abs, 5e-3);
  EXPECT_GE(of(wanted, AttentionRung::bf16).cosine, 0.999);
  x = sample_attention(AttentionSample::normal, 1, 64, 64, 2);
  set_nan(x.v, 60 * 64 + 3);  // on `fast` its channel shares a scale
  const auto spoilt =
      measure_attention(x.q.view(), x.k.view(), x.v.view(), {.mask = {.causal = true}, .rows = 0});
  EXPECT_TRUE(std::isnan(of(spoilt, AttentionRung::fast).max_abs));
  EXPECT_TRUE(std::isnan(of(spoilt, AttentionRung::fast).cosine));
  EXPECT_GE(of(spoilt, AttentionRung::fast).failures, 60);
}

TEST(AttentionError, ScoresAreThoseThatRowsSee) {
  AttentionSampleInputs x = sample_attention(AttentionSample::normal, 1, 64, 64, 2);
  const std::int64_t lengths[] = {40};
  const AttentionErrorOptions options{.mask = {.key_lengths = lengths}, .rows = 0};
  const auto before = measure_attention(x.q.view(), x.k.view(), x.v.view(), options);
  for (std::int64_t at = 40 * 64; at < 64 * 64; ++at)
    x.k.span<std::uint16_t>()[static_cast<std::size_t>(at)] = 0x4489;  // 1096
  const auto after = measure_attention(x.q.view(), x.k.view(), x.v.view(), options);
  EXPECT_EQ(of(after, AttentionRung::strict).stages.scores,
            of(before, AttentionRung::strict).stages.scores);
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
