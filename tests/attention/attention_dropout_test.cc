// Dropout of attention weights: which ones, how many, the same forward and backward on every
// backend, and gradients at a fixed mask.
#include "octavo/backend/attention_dropout_mask.h"
#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr double kRate = 0.3;

// K of zeros makes all weights of a row 1 / keys, and V of unit rows makes the output the weights.
Made with_visible_weights(const Sizes& sizes, DType dtype = DType::f32) {
  Made made = make_inputs(sizes, Kind::normal, 3, dtype);
  std::ranges::fill(made.k.bytes(), std::byte{0});
  std::vector<float> unit;
  for (std::int64_t i = 0; i < sizes.batches * sizes.kv_heads * sizes.keys * sizes.keys; ++i)
    unit.push_back(i / sizes.keys % sizes.keys == i % sizes.keys ? 1.0F : 0.0F);
  made.v = tensor_of({sizes.batches, sizes.kv_heads, sizes.keys, sizes.keys}, unit, dtype);
  return made;
}

const std::vector<Sizes>& mask_sizes() {
  static const std::vector<Sizes> all = {
      {.batches = 2, .heads = 4, .kv_heads = 2, .queries = 70, .keys = 150, .depth = 32},
      {.heads = 2, .kv_heads = 2, .queries = 1, .keys = 144, .depth = 32},  // decode
      {.queries = 200, .keys = 33, .depth = 24}};
  return all;
}

// 32-bit draws: the chance of a weight, its element of the mask, and its size are all exact.
TEST(AttentionDropout, TheSameWeightsOnEveryBackendAndRung) {
  const AttentionDropout dropout{.probability = kRate, .seed = 0x123456789ABCDEFull};
  for (const Sizes& sizes : mask_sizes())
    for (const AttentionRung rung :
         {AttentionRung::exact, AttentionRung::f32, AttentionRung::bf16, AttentionRung::f16,
          AttentionRung::strict, AttentionRung::fast}) {
      const DType dtype = rung == AttentionRung::bf16 ? DType::bf16 : DType::f32;
      const Made made = with_visible_weights(sizes, dtype);
      for (const BackendInfo& backend : support::every_backend()) {
        if (support::is_staged(backend)) continue;
        for (const int threads : {1, 3}) {
          const Tensor out = attention(made.q, made.k, made.v,
                                       {.rung = rung,
                                        .dropout = dropout,
                                        .out = DType::f32,
                                        .threads = threads,
                                        .backend = backend.kernels});
          const auto numbers = out.span<float>();
          // e4m3 has 1 / keys within 2^-4, and bf16 within 2^-9.
          const double kept = 1.0 / static_cast<double>(sizes.keys) / (1.0 - kRate),
                       off = rung == AttentionRung::fast ? 0x1p-4 : 0x1p-8;
          std::size_t at = 0;
          for (std::int64_t b = 0; b < sizes.batches; ++b)
            for (std::int64_t h = 0; h < sizes.heads; ++h)
              for (std::int64_t i = 0; i < sizes.queries; ++i)
                for (std::int64_t j = 0; j < sizes.keys; ++j, ++at) {
                  const double want = dropout_keep(dropout, b, h, i, j) ? kept : 0.0;
                  ASSERT_NEAR(numbers[at], want, off * want)
                      << backend.name << " " << name_of(rung) << " " << b << " " << h << " " << i
                      << " " << j;
                }
        }
      }
    }
}

// Of n independent draws the share kept is within six standard deviations of 1 - probability; and
// neighbouring rows, heads, batches and seeds do not agree more often than chance has it.
TEST(AttentionDropout, HowManyAreKept) {
  for (const double rate : {0.01, 0.1, 0.5, 0.9}) {
    constexpr std::int64_t kSide = 400;
    const double n = static_cast<double>(kSide * kSide);
    const auto share = [&](auto&& of) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < kSide; ++i)
        for (std::int64_t j = 0; j < kSide; ++j) count += of(i, j) ? 1 : 0;
      return static_cast<double>(count) / n;
    };
    const AttentionDropout dropout{rate, 7}, other{rate, 8};
    const auto keep = [&](const AttentionDropout& of, std::int64_t b, std::int64_t h,
                          std::int64_t i, std::int64_t j) { return dropout_keep(of, b, h, i, j); };
    EXPECT_NEAR(share([&](auto i, auto j) { return keep(dropout, 0, 0, i, j); }), 1.0 - rate,
                6.0 * std::sqrt(rate * (1.0 - rate) / n));
    const double agree = rate * rate + (1.0 - rate) * (1.0 - rate),
                 sigma = std::sqrt(agree * (1.0 - agree) / n);
    const auto agrees = [&](auto&& second) {
      return share([&](auto i, auto j) { return keep(dropout, 0, 0, i, j) == second(i, j); });
    };
    EXPECT_NEAR(agrees([&](auto i, auto j) { return keep(dropout, 0, 0, i + 1, j); }), agree,
                6 * sigma);
    EXPECT_NEAR(agrees([&](auto i, auto j) { return keep(dropout, 0, 0, i, j + 1); }), agree,
                6 * sigma);
    EXPECT_NEAR(agrees([&](auto i, auto j) { return keep(dropout, 0, 1, i, j); }), agree,
                6 * sigma);
    EXPECT_NEAR(agrees([&](auto i, auto j) { return keep(dropout, 1, 0, i, j); }), agree,
                6 * sigma);
    EXPECT_NEAR(agrees([&](auto i, auto j) { return keep(other, 0, 0, i, j); }), agree, 6 * sigma);
  }
}

// The mean over seeds is attention without dropout: a row's output is a sum of weights w_j with a
// standard deviation of sqrt(p / (1 - p) sum (w_j v_j)^2) <= sqrt(p / (1 - p) / n_eff) max |v|.
TEST(AttentionDropout, ExpectedOutputIsThatWithoutDropout) {
  const Made made =
      make_inputs({.queries = 12, .keys = 40, .depth = 16}, Kind::normal, 4, DType::f64);
  const Tensor whole =
      attention(made.q, made.k, made.v, {.rung = AttentionRung::exact, .out = DType::f64});
  std::vector<double> sums(whole.span<double>().size()), squares(sums.size());
  constexpr int kSeeds = 400;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Tensor out = attention(made.q, made.k, made.v,
                                 {.rung = AttentionRung::exact,
                                  .dropout = {0.25, static_cast<std::uint64_t>(seed)},
                                  .out = DType::f64});
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double off = out.span<double>()[i] - whole.span<double>()[i];
      sums[i] += off;
      squares[i] += off * off;
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i)  // 5.5 sigma for one of 192 elements
    ASSERT_LE(std::abs(sums[i]), 5.5 * std::sqrt(squares[i])) << i;
}

TEST(AttentionDropout, WithoutAnyNothingChanges) {
  const Made made = make_inputs({.queries = 90, .keys = 130, .depth = 64}, Kind::normal, 4);
  const Tensor lse = Tensor::values({1, 1, 90}, DType::f32),
               dropped_lse = Tensor::values({1, 1, 90}, DType::f32);
  const auto run = [&](const AttentionDropout& dropout, const Tensor& sums) {
    return attention(made.q, made.k, made.v,
                     {.rung = AttentionRung::bf16, .dropout = dropout, .log_sum_exp = sums.view()});
  };
  const Tensor plain = run({}, lse), seeded = run({0.0, 99}, lse);
  EXPECT_TRUE(std::ranges::equal(plain.bytes(), seeded.bytes()));
  const Tensor dropped = run({0.5, 99}, dropped_lse);
  EXPECT_FALSE(std::ranges::equal(plain.bytes(), dropped.bytes()));
  EXPECT_TRUE(std::ranges::equal(lse.bytes(), dropped_lse.bytes()));
}

// A NaN of V reaches the rows that keep its weight, and no others.
TEST(AttentionDropout, NanOfADroppedValueIsLeftOut) {
  const AttentionDropout dropout{kRate, 5};
  Made made = make_inputs({.queries = 60, .keys = 50, .depth = 16}, Kind::normal, 4, DType::f32);
  made.v.span<float>()[20 * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
  for (const BackendInfo& backend : support::every_backend()) {
    if (support::is_staged(backend)) continue;
    const Tensor out =
        attention(made.q, made.k, made.v,
                  {.rung = AttentionRung::f32, .dropout = dropout, .backend = backend.kernels});
    for (std::int64_t i = 0; i < 60; ++i)
      ASSERT_EQ(std::isnan(out.span<float>()[static_cast<std::size_t>(i * 16 + 3)]),
                dropout_keep(dropout, 0, 0, i, 20))
          << backend.name << " " << i;
  }
}

TEST(AttentionDropout, AutomaticIsF32) {
  const Made made = make_inputs({.queries = 40, .keys = 50, .depth = 16}, Kind::normal, 4);
  AttentionReport report;
  const AttentionDropout dropout{kRate, 5};
  const Tensor got = attention(made.q, made.k, made.v, {.dropout = dropout, .report = &report}),
               want = attention(made.q, made.k, made.v,
                                {.rung = AttentionRung::f32, .dropout = dropout});
  EXPECT_TRUE(std::ranges::equal(got.bytes(), want.bytes()));
  ASSERT_EQ(report.choices.size(), 1u);
  EXPECT_EQ(report.choices[0].rung, AttentionRung::f32);
}

TEST(AttentionDropout, DifferencesOfTheForwardPass) {
  const Sizes sizes{
      .batches = 2, .heads = 2, .kv_heads = 1, .queries = 6, .keys = 9, .depth = 4, .width = 3};
  for (const double cap : {0.0, 2.0}) {
    const Made made = make_inputs(sizes, Kind::normal, 21, DType::f64);
    const Tensor d_out =
        make_inputs({.batches = 2, .heads = 2, .kv_heads = 2, .queries = 6, .keys = 6, .depth = 3},
                    Kind::normal, 22, DType::f64)
            .v;
    const AttentionOptions options{.rung = AttentionRung::exact,
                                   .mask = {.causal = true, .bottom_right = true},
                                   .softmax_scale = 0.7,
                                   .soft_cap = cap,
                                   .dropout = {kRate, 11},
                                   .out = DType::f64};
    const auto loss = [&] {
      const Tensor out = attention(made.q, made.k, made.v, options);
      double sum = 0.0;
      for (std::size_t i = 0; i < out.span<double>().size(); ++i)
        sum += out.span<double>()[i] * d_out.span<double>()[i];
      return sum;
    };
    const AttentionGradients gradients =
        attention_backward(made.q, made.k, made.v, d_out.view(), options);
    const auto check = [&](const Tensor& input, const Tensor& gradient, const char* name) {
      for (std::size_t i = 0; i < input.span<double>().size(); ++i) {
        double& number = input.span<double>()[i];
        const double before = number, step = 1e-5;
        number = before + step;
        const double above = loss();
        number = before - step;
        const double below = loss();
        number = before;
        // As without dropout (attention_gradient_test.cc), times its factor.
        ASSERT_NEAR(gradient.span<double>()[i], (above - below) / (2 * step), 3e-8 / (1 - kRate))
            << name << " " << i;
      }
    };
    check(made.q, gradients.q, "dQ");
    check(made.k, gradients.k, "dK");
    check(made.v, gradients.v, "dV");
  }
}

TEST(AttentionDropout, ProbabilitiesThatCannotBeOne) {
  const Made made = make_inputs({.queries = 4, .keys = 5, .depth = 8}, Kind::normal, 4);
  for (const double rate : {-0.1, 1.0, 1.5, std::nan("")}) {
    EXPECT_THROW((void)attention(made.q, made.k, made.v, {.dropout = {rate, 0}}), Error) << rate;
    EXPECT_THROW(
        (void)attention_backward(made.q, made.k, made.v, made.q.view(), {.dropout = {rate, 0}}),
        Error)
        << rate;
  }
}

}  // namespace
}  // namespace octavo::testing
