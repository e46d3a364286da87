// Decode attention with values of very different magnitudes.
#include <cmath>
#include <cstring>
#include <string>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr std::int64_t kDepth = 64;

Tensor filled(std::int64_t rows, float number) {
  const std::vector<float> numbers(static_cast<std::size_t>(rows * kDepth), number);
  return tensor_of({1, 1, rows, kDepth}, numbers, DType::f32);
}

// Keys are equal, so that an output is the mean of V. Where per-token scales make a packed f16
// weight underflow beside a larger one its value vanishes, but the weight still counts in the sum.
TEST(AttentionDecodeEdges, AWeightWhoseValueVanishesIsStillDividedBy) {
  constexpr std::int64_t kKeys = 128;
  const QuantizedTensor k = quantize(filled(kKeys, 0.0F).view(), preset("fp8-channel"));
  const Tensor q = filled(1, 1.0F);
  for (const bool one_is_large : {true, false})
    for (const AttentionRung rung : {AttentionRung::bf16, AttentionRung::automatic}) {
      Tensor values = filled(kKeys, 1.0F);
      for (std::int64_t key = 0; key < kKeys; ++key)
        if (one_is_large ? key == 7 : key % 2 == 0)
          std::fill_n(values.span<float>().begin() + key * kDepth, kDepth,
                      one_is_large ? 1e10F : 1e-10F);
      const double wanted = one_is_large ? 1e10 / kKeys : 0.5;
      Tensor lse = Tensor::values({1, 1, 1}, DType::f32);
      const Tensor out = attention(q, k, quantize(values.view(), preset("fp8-channel")),
                                   {.rung = rung, .out = DType::f32, .log_sum_exp = lse.view()});
      // Weights are powers of two: what is left is the scale's rounding, and sums in f32.
      for (std::int64_t e = 0; e < kDepth; ++e)
        ASSERT_NEAR(out.span<float>()[static_cast<std::size_t>(e)], wanted, 1e-3 * wanted)
            << octavo::name_of(rung);
      EXPECT_NEAR(lse.span<float>()[0], std::log(128.0), 1e-3) << octavo::name_of(rung);
    }
}

// `auto` samples one row in eight of V, and all of those are zeros.
TEST(AttentionDecodeEdges, AutomaticTakesF32WhereItKnowsNothingOfValues) {
  constexpr std::int64_t kKeys = 4096;
  Made made =
      make_inputs({.queries = 1, .keys = kKeys, .depth = kDepth}, Kind::normal, 2, DType::f32);
  for (std::int64_t key = 0; key < kKeys; ++key)
    for (std::int64_t e = 0; e < kDepth; ++e)
      made.v.span<float>()[static_cast<std::size_t>(key * kDepth + e)] *=
          key % 8 == 0 ? 0.0F : 1000.0F;
  for (float& x : made.k.span<float>()) x *= 0.3F;
  const Tensor q = tensor_of(
      made.q.shape(), {made.q.span<float>().begin(), made.q.span<float>().end()}, DType::bf16);
  const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                        v = quantize(made.v.view(), preset("fp8-channel"));
  AttentionReport report;
  const Tensor out = attention(q, k, v, {.out = DType::f32, .report = &report});
  ASSERT_EQ(report.choices.size(), 1U);
  EXPECT_EQ(report.choices[0].rung, AttentionRung::f32) << report.choices[0].explanation;
  Errors errors;
  const Tensor exact_k = dequantize(k), exact_v = dequantize(v);
  compare(errors, out.view(), {.q = q.view(), .k = exact_k.view(), .v = exact_v.view()},
          spread_rows({.queries = 1, .keys = kKeys, .depth = kDepth}, 1));
  EXPECT_EQ(errors.failures, 0) << errors;
}

// The value outside the sample is large in one channel, which a mean over channels hides.
TEST(AttentionDecodeEdges, AutomaticSeesOneLargeChannelOutsideItsSampleRows) {
  constexpr std::int64_t kKeys = 4096, kOther = 1001, kLarge = 1003;
  for (const bool has_large : {false, true}) {
    Made made =
        make_inputs({.queries = 1, .keys = kKeys, .depth = kDepth}, Kind::normal, 11, DType::f32);
    for (std::int64_t d = 0; d < kDepth; ++d) {
      const float along = made.q.span<float>()[static_cast<std::size_t>(d)];
      made.k.span<float>()[static_cast<std::size_t>(kOther * kDepth + d)] = 3.0F * along;
      made.k.span<float>()[static_cast<std::size_t>(kLarge * kDepth + d)] = 3.0625F * along;
    }
    if (has_large) made.v.span<float>()[kLarge * kDepth + 3] = 10.0F;
    const Tensor q = tensor_of(
        made.q.shape(), {made.q.span<float>().begin(), made.q.span<float>().end()}, DType::bf16);
    const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                          v = quantize(made.v.view(), preset("fp8-channel"));
    AttentionReport report;
    const Tensor out = attention(q, k, v, {.rtol = 0.0, .out = DType::f32, .report = &report});
    ASSERT_EQ(report.choices.size(), 1U);
    EXPECT_EQ(report.choices[0].rung, AttentionRung::bf16) << report.choices[0].explanation;
    EXPECT_EQ(report.redone, has_large ? 1 : 0);
  }
}

// Squares of such keys are below the least of f32; their scores, with a scale to match, are as
// large as others'.
TEST(AttentionDecodeEdges, LargeScoresOfTinyKeysAreSeen) {
  const Sizes sizes{.queries = 1, .keys = 500, .depth = kDepth};
  Made made = make_inputs(sizes, Kind::normal, 2, DType::f32);
  for (float& x : made.k.span<float>()) x *= 1e-25F;
  const Tensor q = tensor_of(
      made.q.shape(), {made.q.span<float>().begin(), made.q.span<float>().end()}, DType::bf16);
  const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                        v = quantize(made.v.view(), preset("fp8-channel"));
  const double scale = 100.0 / 8.0 * 1e25;  // scores of a standard deviation of 100
  Tensor lse = Tensor::values({1, 1, 1}, DType::f32);
  (void)attention(q, k, v,
                  {.rung = AttentionRung::bf16,
                   .softmax_scale = scale,
                   .out = DType::f32,
                   .log_sum_exp = lse.view()});
  const auto queries = rows_of(q.view(), 0, 0);
  const Tensor exact_k = dequantize(k);
  double most = -HUGE_VAL;
  for (const auto& key : rows_of(exact_k.view(), 0, 0)) {
    double sum = 0.0;
    for (std::size_t d = 0; d < key.size(); ++d) sum += queries[0][d] * key[d];
    most = std::max(most, sum * scale);
  }
  // One key has nearly all the weight: the log-sum-exp is its score, up to ln 2 if two had it. Sums
  // in f32 are off by 2^-24 sqrt(D) / 3 + 2^-24 of a few times that, those of f16 by up to tenths.
  EXPECT_NEAR(lse.span<float>()[0], most, 1e-2) << most;
}

}  // namespace
}  // namespace octavo::testing
