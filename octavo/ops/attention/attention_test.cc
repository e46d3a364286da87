#include "octavo/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "octavo/base/error.h"
#include "octavo/base/error_testing_internal.h"
#include "octavo/quant/delayed.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

using error_testing::message_of;

Tensor drawn(const Shape& shape, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor tensor = Tensor::values(shape, DType::f32);
  for (float& number : tensor.span<float>()) number = normal(random);
  return tensor;
}

TEST(Attention, NumbersThatCanBeDoneByHand) {
  // Scores 0 and ln 3, by a query of 1 and a scale of 1: weights 1/4 and 3/4.
  Tensor q = drawn({1, 1}), k = drawn({2, 1}), v = drawn({2, 2});
  q.span<float>()[0] = 1.0F;
  k.span<float>()[0] = 0.0F;
  k.span<float>()[1] = std::log(3.0F);
  std::ranges::copy(std::vector<float>{4, 8, 0, -4}, v.span<float>().begin());
  const Tensor lse = Tensor::values({1}, DType::f32);
  const Tensor out = attention(
      q, k, v, {.rung = AttentionRung::f32, .softmax_scale = 1.0F, .log_sum_exp = lse.view()});
  EXPECT_NEAR(out.span<float>()[0], 1.0F, 1e-6F);
  EXPECT_NEAR(out.span<float>()[1], -1.0F, 1e-6F);
  EXPECT_NEAR(lse.span<float>()[0], std::log(4.0F), 1e-6F);
}

// A table may hold more keys than the longest batch has; a bias is as wide as the table.
TEST(Attention, PagesTakeABiasOfAllKeysOfTheTable) {
  const Tensor q = drawn({1, 1, 2, 8}, 1), pool = drawn({3, 1, 4, 8}, 2), bias = drawn({2, 12}, 3);
  const std::int32_t table[] = {2, 0, 1};
  const Tensor keys = Tensor::values({1, 1, 12, 8}, DType::f32);
  for (std::size_t i = 0; i < 3; ++i)
    std::ranges::copy(pool.span<float>().subspan(static_cast<std::size_t>(table[i]) * 32, 32),
                      keys.span<float>().begin() + static_cast<std::ptrdiff_t>(i * 32));
  const std::int64_t lengths[] = {5};
  AttentionOptions options{.rung = AttentionRung::f32,
                           .mask = {.key_lengths = lengths, .bias = bias.view()}};
  const Tensor want = attention(q, keys, keys, options);
  options.block_table = {table, 1, 3, 3};
  EXPECT_TRUE(std::ranges::equal(attention(q, pool, pool, options).bytes(), want.bytes()));
}

TEST(Attention, SoftCapsAndSinksThatCannotBeOnesAreNamed) {
  const auto of = [](const AttentionOptions& options) {
    return message_of([&] {
      (void)attention(drawn({1, 2, 3, 4}), drawn({1, 1, 5, 4}), drawn({1, 1, 5, 4}), options);
    });
  };
  for (const double cap :
       {-1.0, static_cast<double>(NAN), static_cast<double>(INFINITY), 1e31, 1e-31, -0x1p-1074})
    EXPECT_NE(of({.soft_cap = cap}).find("expected 0, which is none, or a number from 1e-30 to"),
              std::string::npos)
        << cap;
  EXPECT_EQ(of({.soft_cap = -1.0}),
            "[attention] got a soft cap of -1; expected 0, which is none, or a number from 1e-30 "
            "to 1e+30");
  const Tensor one = drawn({1}), two = drawn({2}), square = drawn({2, 1});
  EXPECT_EQ(of({.sinks = one.view()}),
            "[attention] the sinks have shape [1]; expected [2], one for each query head");
  EXPECT_NE(of({.sinks = square.view()}).find("the sinks have shape [2, 1]"), std::string::npos);
  const Tensor wide = Tensor::values({2}, DType::f64);
  EXPECT_EQ(of({.sinks = wide.view()}),
            "[attention] the sinks are float64; expected float32, a logit for each query head");
  View elsewhere = two.view();
  elsewhere.device = {.kind = DeviceKind::cuda, .index = 0};
  EXPECT_NE(of({.sinks = elsewhere}).find("the sinks"), std::string::npos);
  EXPECT_EQ(of({.sinks = two.view()}), "");
  // Memory for a gradient of sinks that there are none of, and of another shape.
  const Tensor q = drawn({1, 2, 3, 4}), k = drawn({1, 1, 5, 4}), d_out = drawn({1, 2, 3, 4});
  const auto backward = [&](const View& sinks, const View& d_sinks) {
    return message_of([&] {
      attention_backward_into(q, k, k, d_out.view(), q.view(), k.view(), k.view(),
                              {.rung = AttentionRung::f32, .sinks = sinks}, {}, d_sinks);
    });
  };
  EXPECT_NE(backward({}, two.view()).find("and no sinks"), std::string::npos);
  EXPECT_NE(backward(two.view(), one.view()).find("[1]; expected [2]"), std::string::npos);
  const Tensor narrow = Tensor::values({2}, DType::bf16);
  EXPECT_NE(backward(two.view(), narrow.view()).find("expected float32 or float64"),
            std::string::npos);
}

// With the sink's stride: every second number of four.
TEST(Attention, SinksOfAnyStride) {
  const Tensor q = drawn({1, 2, 3, 4}, 1), k = drawn({1, 1, 5, 4}, 2), four = drawn({4}, 3),
               two = drawn({2});
  for (std::size_t h = 0; h < 2; ++h) two.span<float>()[h] = four.span<float>()[2 * h];
  View apart = four.view();
  apart.shape = {2};
  apart.strides = {8};
  const Tensor a = attention(q, k, k, {.rung = AttentionRung::f32, .sinks = apart}),
               b = attention(q, k, k, {.rung = AttentionRung::f32, .sinks = two.view()});
  EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes()));
}

TEST(Attention, OperandsThatDoNotFitAreNamed) {
  const auto of = [](const Shape& q, const Shape& k, const Shape& v,
                     const AttentionOptions& options = {}) {
    return message_of([&] { (void)attention(drawn(q), drawn(k), drawn(v), options); });
  };
  EXPECT_EQ(of({1, 2, 3, 4}, {1, 2, 5, 6}, {1, 2, 5, 4}),
            "[attention] Q has shape [1, 2, 3, 4], K has shape [1, 2, 5, 6] and V has shape [1, 2, "
            "5, 4]: the head size is 4 in Q and 6 in K; expected the same one");
  EXPECT_NE(of({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 6, 4}).find("there are 5 keys and 6 values"),
            std::string::npos);
  EXPECT_NE(of({1, 3, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 4}).find("expected a multiple of the 2 heads"),
            std::string::npos);
  EXPECT_NE(of({3, 4}, {1, 5, 4}, {1, 5, 4}).find("same number of dimensions"), std::string::npos);
  EXPECT_NE(of({4}, {4}, {4}).find("expected [batch, heads, tokens, size]"), std::string::npos);
  EXPECT_NE(of({2, 1, 3, 4}, {1, 1, 3, 4}, {1, 1, 3, 4}).find("same number of batches"),
            std::string::npos);
  const std::int64_t lengths[] = {7};
  EXPECT_EQ(of({1, 1, 3, 4}, {1, 1, 5, 4}, {1, 1, 5, 4}, {.mask = {.key_lengths = lengths}}),
            "[attention] got a key length of 7 for batch 0; expected 0 to 5");
  EXPECT_NE(of({1, 1, 3, 4}, {1, 1, 5, 4}, {1, 1, 5, 4}, {.mask = {.causal = true, .right = 2}})
                .find("a causal row sees nothing after itself"),
            std::string::npos);
  EXPECT_NE(of({1, 1, 3, 4}, {1, 1, 5, 4}, {1, 1, 5, 4}, {.softmax_scale = NAN}).find("not finite"),
            std::string::npos);
  EXPECT_NE(of({1, 1, 3, 4}, {1, 1, 5, 4}, {1, 1, 5, 4}, {.rtol = NAN}).find("tolerance"),
            std::string::npos);
  const AttentionRange beyond[] = {{0, 0, 2, 2}};
  EXPECT_NE(of({1, 1, 3, 4}, {1, 1, 5, 4}, {1, 1, 5, 4}, {.ranges = beyond}).find("rows 2 to 4"),
            std::string::npos);
}

TEST(Attention, ScalesOfTheWrongGridAreNamed) {
  const Tensor x = drawn({1, 2, 8, 32});
  QuantizedTensor q = quantize(x.view(), preset("mxfp8"));
  q.scaling.tile = {1, 16};
  EXPECT_EQ(message_of([&] { (void)attention(x, q, x); }),
            "[attention] K has scales of shape [1, 2, 8, 1], and its tiles (e4m3fn, tile 1x16, "
            "scale e8m0 rceil) form a grid of [1, 2, 8, 2]; quantized_from puts codes and scales "
            "together");
  Scaling along = preset("mxfp8");
  along.axis = 2;
  const QuantizedTensor tokens = quantize(x.view(), along);
  EXPECT_NE(message_of([&] { (void)attention(x, x, tokens); }).find("quantized along axis 2"),
            std::string::npos);
  const QuantizedTensor good = quantize(x.view(), preset("fp8"));
  EXPECT_NE(message_of([&] {
              (void)attention(good, good, good, {.rung = AttentionRung::balanced});
            }).find("'balanced' smooths"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              (void)attention(good, good, good, {.rung = AttentionRung::naive});
            }).find("'naive' casts values"),
            std::string::npos);
  Scaling rotated = preset("fp8");
  rotated.hadamard = {.rowwise = true, .signs = 3};
  const QuantizedTensor other = quantize(x.view(), rotated);
  EXPECT_NE(message_of([&] { (void)attention(other, good, good); }).find("same signs"),
            std::string::npos);
  EXPECT_NE(message_of([&] { (void)attention(good, good, other); }).find("V is Hadamard"),
            std::string::npos);
}

TEST(Attention, OutputsThatDoNotFitAreNamed) {
  const Tensor x = drawn({1, 1, 4, 4});
  EXPECT_NE(message_of([&] { attention_into(x, x, x, x.view()); }).find("shares memory with Q"),
            std::string::npos);
  const Tensor narrow = drawn({1, 1, 4, 3});
  EXPECT_EQ(message_of([&] { attention_into(x, x, x, narrow.view()); }),
            "[attention] the output has shape [1, 1, 4, 3]; expected [1, 1, 4, 4]");
  const Tensor out = drawn({1, 1, 4, 4}), lse = drawn({1, 4});
  EXPECT_NE(message_of([&] {
              attention_into(x, x, x, out.view(), {.log_sum_exp = lse.view()});
            }).find("log_sum_exp has shape [1, 4]; expected [1, 1, 4]"),
            std::string::npos);
}

TEST(Attention, NamesOfRungs) {
  for (const char* name :
       {"exact", "f32", "bf16", "f16", "strict", "balanced", "fast", "naive", "auto"})
    EXPECT_EQ(name_of(parse_attention_rung(name)), name);
  EXPECT_EQ(message_of([] { (void)parse_attention_rung("fp8"); }),
            "[attention] got precision 'fp8'; expected auto, exact, f32, bf16, f16, strict, "
            "balanced, fast or naive");
}

// A layer's state: delayed scales of Q, K and V, an amax of each, of P and of O.
TEST(Attention, QuantizersOfALayer) {
  const Tensor q = drawn({1, 2, 40, 32}, 1), k = drawn({1, 2, 40, 32}, 2),
               v = drawn({1, 2, 40, 32}, 3);
  std::vector<float> history(5 * 4, 0.0F), inv_scale(5, 1.0F), scale(5, 1.0F);
  const DelayedState state{.history = value_view(history.data(), DType::f32, {4, 5}),
                           .inv_scale = value_view(inv_scale.data(), DType::f32, {5}),
                           .scale = value_view(scale.data(), DType::f32, {5}),
                           .calls = {}};
  reset_delayed(state);
  std::vector<Float8Quantizer> quantizers;
  for (std::size_t i = 0; i < 5; ++i)
    quantizers.emplace_back(
        Float8Options{.inv_scale = value_view(inv_scale.data() + i, DType::f32, {1}),
                      .amax = value_view(history.data() + i, DType::f32, {1}),
                      .columnwise = false});
  const AttentionOptions options{.rung = AttentionRung::strict,
                                 .q_quantizer = &quantizers[0],
                                 .k_quantizer = &quantizers[1],
                                 .v_quantizer = &quantizers[2],
                                 .p_quantizer = &quantizers[3]};
  const Tensor exact = attention(q, k, v, {.rung = AttentionRung::exact});
  const auto error_of = [&](const QuantizedTensor& codes) {
    const Tensor values = dequantize(codes);
    double error = 0.0, sum = 0.0;
    for (std::size_t i = 0; i < values.span<float>().size(); ++i) {
      const double a = values.span<float>()[i], b = exact.span<float>()[i];
      error += (a - b) * (a - b);
      sum += b * b;
    }
    return std::sqrt(error / sum);
  };
  // e4m3 of Q, K, V and O: 2.6 % each, and scores of a standard deviation of 1.
  EXPECT_LE(error_of(attention_quantized(q, k, v, quantizers[4], options)), 0.09);
  EXPECT_FLOAT_EQ(history[0], amax(q.view()));
  EXPECT_FLOAT_EQ(history[1], amax(k.view()));
  EXPECT_FLOAT_EQ(history[2], amax(v.view()));
  EXPECT_GT(history[3], 0.5F);  // p of the largest weight is above 1/2 by construction
  EXPECT_LE(history[3], 1.0F);
  EXPECT_GT(history[4], 0.0F);
  update_delayed(state, {});
  EXPECT_FLOAT_EQ(inv_scale[0], 448.0F / amax(q.view()));
  EXPECT_LE(error_of(attention_quantized(q, k, v, quantizers[4], options)), 0.09);
}

TEST(Attention, AutoSaysWhatItTookAndWhy) {
  const Tensor q = drawn({1, 1, 300, 32}, 1), k = drawn({1, 1, 300, 32}, 2),
               v = drawn({1, 1, 300, 32}, 3);
  AttentionReport report;
  (void)attention(q, k, v, {.mask = {.causal = true}, .report = &report});
  ASSERT_EQ(report.choices.size(), 3u);  // ranges of 128 rows
  std::int64_t rows = 0;
  for (const AttentionChoice& choice : report.choices) {
    rows += choice.rows.count;
    EXPECT_GE(choice.n_eff, 1.0);
    EXPECT_LE(choice.predicted, choice.tolerance);
    EXPECT_EQ(choice.explanation.find("the cheapest within 0.005"), 0u) << choice.explanation;
  }
  EXPECT_EQ(rows, 300);
  EXPECT_LT(report.choices[0].n_eff, report.choices[2].n_eff);
  // A tolerance that anything meets, and one that nothing does.
  (void)attention(q, k, v, {.atol = 10.0, .report = &report});
  for (const AttentionChoice& choice : report.choices) EXPECT_EQ(choice.rung, AttentionRung::fast);
  (void)attention(q, k, v, {.atol = 0.0, .report = &report});
  for (const AttentionChoice& choice : report.choices) {
    EXPECT_EQ(choice.rung, AttentionRung::f32);
    EXPECT_EQ(choice.explanation.find("none is within 0"), 0u) << choice.explanation;
  }
}

// One query with all weight on one key, among rows with even weights: its largest weight reveals
// it.
TEST(Attention, AutoDoesPeakedRowsAgain) {
  Tensor q = drawn({1, 1, 2048, 64}, 1), k = drawn({1, 1, 2048, 64}, 2),
         v = drawn({1, 1, 2048, 64}, 3);
  for (float& number : q.span<float>()) number *= 0.05F;
  for (std::size_t d = 0; d < 64; ++d) {
    // As long as a query can be without being the longest of its range.
    const float sign = k.span<float>()[700 * 64 + d] > 0 ? 1.0F : -1.0F;
    q.span<float>()[100 * 64 + d] = sign * 1.1F;
    q.span<float>()[101 * 64 + d] = 1.2F;
  }
  for (std::size_t d = 0; d < 64; ++d) {
    const float sign = k.span<float>()[700 * 64 + d] > 0 ? 1.0F : -1.0F;
    k.span<float>()[700 * 64 + d] = sign * 3.0F;
  }
  AttentionReport report;
  const AttentionRange rows[] = {{0, 0, 0, 256}};
  const Tensor out = Tensor::values({1, 1, 2048, 64}, DType::f32);
  attention_into(q, k, v, out.view(), {.atol = 1e-2, .report = &report, .ranges = rows});
  const Tensor exact = attention(q, k, v, {.rung = AttentionRung::exact, .ranges = rows});
  EXPECT_GE(report.redone, 1);
  for (std::size_t i = 100 * 64; i < 101 * 64; ++i)
    EXPECT_NEAR(out.span<float>()[i], exact.span<float>()[i], 1e-2);
}

}  // namespace
}  // namespace octavo
