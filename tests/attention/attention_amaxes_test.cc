// The largest S, P and O of a call, against the oracle; and attention straight into codes.
#include <algorithm>
#include <cmath>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr std::array kRungs = {AttentionRung::exact, AttentionRung::f32, AttentionRung::f16,
                               AttentionRung::automatic};

// Of the scores that a mask, lengths or a bias leave, whatever lies beyond.
TEST(AttentionAmaxes, AreThoseOfWhatRowsSee) {
  const Made made = make_inputs(
      {.batches = 2, .heads = 2, .kv_heads = 1, .queries = 150, .keys = 130, .depth = 32},
      Kind::normal, 3, DType::f16);
  const std::int64_t key_lengths[] = {130, 90};
  const Tensor bias = Tensor::values({130}, DType::f32);
  std::ranges::fill(bias.span<float>(), 100.0F);  // not part of S
  bias.span<float>()[7] = -HUGE_VALF;
  for (const double cap : {0.0, 2.0})
    for (const AttentionRung rung : kRungs) {
      double s = 0.0, o = 0.0;
      for (std::int64_t batch = 0; batch < 2; ++batch)
        for (std::int64_t head = 0; head < 2; ++head) {
          const oracle::Rows q = rows_of(made.q.view(), batch, head),
                             k = rows_of(made.k.view(), batch, 0),
                             v = rows_of(made.v.view(), batch, 0);
          const oracle::Sees sees{.causal = true, .keys = key_lengths[batch]};
          oracle::Logits logits{.soft_cap = cap, .bias = std::vector<double>(130, 100.0)};
          logits.bias[7] = -HUGE_VAL;
          for (std::int64_t row = 0; row < 150; ++row) {
            const auto at = static_cast<std::size_t>(row);
            for (const double number : oracle::attended(q[at], k, v, 0.125, sees, row, logits).out)
              o = std::max(o, std::abs(number));
            for (std::int64_t key = 0; key < 130; ++key) {
              if (key == 7 || !sees(row, key)) continue;
              double dot = 0.0;
              for (std::size_t d = 0; d < 32; ++d)
                dot += q[at][d] * k[static_cast<std::size_t>(key)][d];
              const double score = dot * 0.125;
              s = std::max(s, std::abs(cap == 0.0 ? score : cap * std::tanh(score / cap)));
            }
          }
        }
      AttentionAmaxes amaxes{.s = -1.0F, .p = -1.0F, .o = -1.0F};
      (void)attention(made.q, made.k, made.v,
                      {.rung = rung,
                       .mask = {.causal = true, .key_lengths = key_lengths, .bias = bias.view()},
                       .softmax_scale = 0.125,
                       .soft_cap = cap,
                       .out = DType::f32,
                       .amaxes = &amaxes});
      // Sums of 32 products in f32, and P of rungs that round it.
      EXPECT_NEAR(amaxes.s, s, 1e-5 * s) << octavo::name_of(rung) << ", cap " << cap;
      EXPECT_NEAR(amaxes.o, o, 6e-3 * o) << octavo::name_of(rung) << ", cap " << cap;
      EXPECT_GT(amaxes.p, 0.5F) << octavo::name_of(rung);
      EXPECT_LE(amaxes.p, 1.0F) << octavo::name_of(rung);
    }
}

// Without batches, or without heads.
TEST(AttentionAmaxes, OfFewerDimensions) {
  const Made made = make_inputs({.heads = 2, .kv_heads = 2, .queries = 20, .keys = 30, .depth = 16},
                                Kind::normal, 3, DType::f32);
  AttentionAmaxes wanted, got;
  (void)attention(made.q, made.k, made.v, {.rung = AttentionRung::f32, .amaxes = &wanted});
  const auto flat = [](const Tensor& tensor) {
    const Shape& shape = tensor.shape();
    return value_view(tensor.view().data, DType::f32, {shape[1], shape[2], shape[3]});
  };
  (void)attention(flat(made.q), flat(made.k), flat(made.v),
                  {.rung = AttentionRung::f32, .amaxes = &got});
  EXPECT_GT(got.s, 0.0F);
  EXPECT_EQ(got.s, wanted.s);
  EXPECT_EQ(got.o, wanted.o);
}

TEST(AttentionAmaxes, NanIsSeen) {
  Made made = make_inputs({.queries = 4, .keys = 8, .depth = 16}, Kind::normal, 3, DType::f32);
  made.k.span<float>()[0] = std::nanf("");
  AttentionAmaxes amaxes;
  (void)attention(made.q, made.k, made.v, {.rung = AttentionRung::f32, .amaxes = &amaxes});
  EXPECT_TRUE(std::isnan(amaxes.s));
}

TEST(AttentionAmaxes, AreOfAllRows) {
  const Made made = make_inputs({.queries = 4, .keys = 8, .depth = 16}, Kind::normal, 3);
  AttentionAmaxes amaxes;
  const AttentionRange one{.count = 1};
  EXPECT_THROW(
      (void)attention(made.q, made.k, made.v, {.amaxes = &amaxes, .ranges = std::span(&one, 1)}),
      Error);
}

TEST(AttentionQuantized, HasTheCodesOfTheF32Result) {
  const Made made =
      make_inputs({.heads = 2, .queries = 70, .keys = 90, .depth = 64}, Kind::normal, 3);
  for (const char* name : {"fp8", "fp8-channel", "mxfp8", "nvfp4"}) {
    const AttentionOptions options{.rung = AttentionRung::bf16, .mask = {.causal = true}};
    const QuantizedTensor got = attention_quantized(made.q, made.k, made.v, preset(name), options);
    AttentionOptions wide = options;
    wide.out = DType::f32;
    const Tensor values = attention(made.q, made.k, made.v, wide);
    const QuantizedTensor wanted = quantize(values.view(), preset(name));
    EXPECT_TRUE(std::ranges::equal(got.rowwise.codes.bytes(), wanted.rowwise.codes.bytes()))
        << name;
    EXPECT_TRUE(std::ranges::equal(got.rowwise.scales.bytes(), wanted.rowwise.scales.bytes()))
        << name;
  }
}

}  // namespace
}  // namespace octavo::testing
