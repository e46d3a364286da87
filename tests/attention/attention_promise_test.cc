// The error bound of `auto` holds for inputs of mixed magnitudes and for all outputs; and inputs
// are not narrowed.
#include <cstring>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

void lengthen(Tensor& rows, std::int64_t row, float times) {
  const std::int64_t size = rows.shape()[3];
  for (std::int64_t d = 0; d < size; ++d)
    rows.span<float>()[static_cast<std::size_t>(row * size + d)] *= times;
}

// A key that is much longer than the others has a score error larger by as much, and may have any
// part of a row's weight. It does not show in the average over keys. Each tolerance would allow a
// cheap rung if all keys were alike.
TEST(AttentionPromise, OneLongKeyAmongThousands) {
  const Sizes sizes{.queries = 512, .keys = 4096, .depth = 64};
  for (const double tolerance : {6e-3, 2e-2})
    for (const float times : {6.0F, 20.0F}) {
      Made made = make_inputs(sizes, Kind::normal, 11, DType::f32);
      lengthen(made.k, 1234, times);
      AttentionReport report;
      const Tensor out = attention(made.q, made.k, made.v,
                                   {.rtol = tolerance, .atol = tolerance, .report = &report});
      const oracle::Rows q = rows_of(made.q.view(), 0, 0), k = rows_of(made.k.view(), 0, 0),
                         v = rows_of(made.v.view(), 0, 0), got = rows_of(out.view(), 0, 0);
      int failures = 0;
      for (std::size_t row = 0; row < q.size(); row += 2) {
        const oracle::AttendedRow exact =
            oracle::attended(q[row], k, v, 0.125, {}, static_cast<std::int64_t>(row));
        for (std::size_t e = 0; e < exact.out.size(); ++e)
          failures += !(std::abs(got[row][e] - exact.out[e]) <=
                        tolerance + tolerance * std::abs(exact.out[e]));
      }
      EXPECT_EQ(failures, 0) << times << " times as long, within " << tolerance << ", "
                             << octavo::name_of(report.choices.at(0).rung);
    }
}

// bf16 is within any tolerance for the output where V is small, and its log-sum-exp is not where
// queries are long: f32 inputs are rounded by 2^-9, and scores of 30 with them.
TEST(AttentionPromise, LogSumExpOfLongQueriesAndSmallValues) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Made made =
        make_inputs({.queries = 512, .keys = 512, .depth = 64}, Kind::normal, 5, DType::f32);
    std::vector<float> q(made.q.span<float>().begin(), made.q.span<float>().end()),
        k(made.k.span<float>().begin(), made.k.span<float>().end()),
        v(made.v.span<float>().begin(), made.v.span<float>().end());
    for (float& number : q) number *= 10.0F;
    for (float& number : v) number *= 1e-3F;
    made.q = tensor_of(made.q.shape(), q, dtype);
    made.k = tensor_of(made.k.shape(), k, dtype);
    made.v = tensor_of(made.v.shape(), v, dtype);
    const Tensor lse = Tensor::values({1, 1, 512}, DType::f32);
    (void)attention(made.q, made.k, made.v, {.rtol = 0.0, .log_sum_exp = lse.view()});
    const oracle::Rows rows = rows_of(made.q.view(), 0, 0), keys = rows_of(made.k.view(), 0, 0),
                       values = rows_of(made.v.view(), 0, 0);
    for (std::int64_t row = 0; row < 512; ++row)
      ASSERT_NEAR(
          lse.span<float>()[row],
          oracle::attended(rows[static_cast<std::size_t>(row)], keys, values, 0.125, {}, row)
              .log_sum_exp,
          5e-3);
  }
}

// Scores whose fraction f32 does not have: no rung is within the tolerance, and the report says it.
TEST(AttentionPromise, ScoresTooLargeForF32AreReported) {
  const auto report_of = [](float times, float bias) {
    Made made = make_inputs({.queries = 64, .keys = 64, .depth = 64}, Kind::normal, 5, DType::f32);
    for (float& number : made.q.span<float>()) number *= times;
    const Tensor added = Tensor::values({64, 64}, DType::f32);
    std::ranges::fill(added.span<float>(), bias);
    AttentionReport report;
    (void)attention(made.q, made.k, made.v, {.mask = {.bias = added.view()}, .report = &report});
    return report.choices.at(0);
  };
  for (const auto& [times, bias] : {std::pair{1e6F, 0.0F}, std::pair{1.0F, -1e6F}}) {
    const AttentionChoice choice = report_of(times, bias);
    EXPECT_EQ(choice.rung, AttentionRung::f32);
    EXPECT_GT(choice.predicted, choice.tolerance);
    EXPECT_NE(choice.explanation.find("fraction"), std::string::npos) << choice.explanation;
  }
  // Nothing is lost where f64 has nothing left of q k either, and hardly anything of small ones.
  for (const float bias : {-100.0F, 0.0F, std::numeric_limits<float>::lowest()}) {
    const AttentionChoice choice = report_of(1.0F, bias);
    EXPECT_LE(choice.predicted, choice.tolerance) << bias << ": " << choice.explanation;
  }
}

// With one key the output is V whatever the score is, and the log-sum-exp is that score.
TEST(AttentionPromise, LogSumExpIsWithinTheToleranceToo) {
  for (const std::int64_t keys : {1, 2, 300})
    for (const std::int64_t queries : {1, 130})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Sizes sizes{.queries = queries, .keys = keys, .depth = 64};
        Made made = make_inputs(sizes, Kind::peaked, 5, dtype);
        // Values so small that the output is good on any rung.
        std::fill(made.v.bytes().begin(), made.v.bytes().end(), std::byte{0});
        const Tensor lse = Tensor::values({1, 1, queries}, DType::f32);
        AttentionReport report;
        const Tensor out =
            attention(made.q, made.k, made.v, {.log_sum_exp = lse.view(), .report = &report});
        const oracle::Rows q = rows_of(made.q.view(), 0, 0), k = rows_of(made.k.view(), 0, 0),
                           v = rows_of(made.v.view(), 0, 0);
        for (std::int64_t row = 0; row < queries; ++row) {
          const double exact =
              oracle::attended(q[static_cast<std::size_t>(row)], k, v, 0.125, {}, row).log_sum_exp;
          ASSERT_NEAR(static_cast<double>(lse.span<float>()[static_cast<std::size_t>(row)]), exact,
                      5e-3 + 5e-3 * std::abs(exact))
              << keys << " keys, row " << row << " of " << queries << ", "
              << octavo::name_of(report.choices.at(0).rung);
        }
      }
}

// 1 / sqrt(3) in f32 is off by 2^-26: a score of 20 by 3e-7, which f64 sees.
TEST(AttentionPromise, ExactHasTheScaleInF64) {
  const Sizes sizes{.queries = 8, .keys = 40, .depth = 3};
  Made made = make_inputs(sizes, Kind::normal, 2, DType::f64);
  for (double& number : made.q.span<double>()) number *= 10.0;
  const auto held_to = [&](const AttentionOptions& options, double scale) {
    const Tensor out = attention(made.q, made.k, made.v, options);
    ASSERT_EQ(out.view().dtype, DType::f64);
    const oracle::Rows q = rows_of(made.q.view(), 0, 0), k = rows_of(made.k.view(), 0, 0),
                       v = rows_of(made.v.view(), 0, 0), got = rows_of(out.view(), 0, 0);
    for (std::size_t row = 0; row < q.size(); ++row) {
      const oracle::AttendedRow exact =
          oracle::attended(q[row], k, v, scale, {}, static_cast<std::int64_t>(row));
      // Scores of at most a few hundred, each off by a few roundings of 2^-53.
      for (std::size_t e = 0; e < exact.out.size(); ++e)
        ASSERT_NEAR(got[row][e], exact.out[e], 1e-12) << "row " << row;
    }
  };
  held_to({.rung = AttentionRung::exact}, 1.0 / std::sqrt(3.0));
  held_to({.rung = AttentionRung::exact, .softmax_scale = 0.1}, 0.1);
}

// float64 in, float64 out, at any precision; and only the rows that were asked for.
TEST(AttentionPromise, Float64InIsFloat64Out) {
  const Sizes sizes{.heads = 2, .kv_heads = 2, .queries = 33, .keys = 70, .depth = 16};
  const Made wide = make_inputs(sizes, Kind::normal, 4, DType::f64),
             narrow = make_inputs(sizes, Kind::normal, 4, DType::f32);
  for (const AttentionRung rung :
       {AttentionRung::f32, AttentionRung::bf16, AttentionRung::strict, AttentionRung::automatic}) {
    const Tensor got = attention(wide.q, wide.k, wide.v, {.rung = rung}),
                 want = attention(narrow.q, narrow.k, narrow.v, {.rung = rung});
    ASSERT_EQ(got.view().dtype, DType::f64) << octavo::name_of(rung);
    for (std::size_t i = 0; i < want.span<float>().size(); ++i)
      ASSERT_EQ(got.span<double>()[i], static_cast<double>(want.span<float>()[i]))
          << octavo::name_of(rung) << " at " << i;
    Tensor some = Tensor::values(got.view().shape, DType::f64);
    std::fill(some.span<double>().begin(), some.span<double>().end(), 7.0);
    const std::vector<AttentionRange> ranges = {{0, 1, 5, 3}};
    attention_into(wide.q, wide.k, wide.v, some.view(), {.rung = rung, .ranges = ranges});
    for (std::size_t i = 0; i < some.span<double>().size(); ++i) {
      const bool asked = i / 16 >= 33 + 5 && i / 16 < 33 + 8;
      ASSERT_EQ(some.span<double>()[i] == 7.0, !asked) << octavo::name_of(rung) << " at " << i;
    }
  }
}

// What rtol does not pay for of the output's own rounding, 2^-8 of bf16, is taken from atol; and
// where it cannot be, the report says so instead of promising.
TEST(AttentionPromise, SixteenBitOutputsAreRoundedWithinTheTolerance) {
  const Sizes sizes{.queries = 256, .keys = 2048, .depth = 64};
  const double atol = 2e-3;
  for (const float size : {0.1F, 1.0F}) {
    Made made = make_inputs(sizes, Kind::biased, 12, DType::f32);
    for (float& number : made.v.span<float>()) number *= size;
    AttentionReport report;
    const Tensor out = attention(
        made.q, made.k, made.v, {.rtol = 0.0, .atol = atol, .out = DType::bf16, .report = &report});
    const oracle::Rows q = rows_of(made.q.view(), 0, 0), k = rows_of(made.k.view(), 0, 0),
                       v = rows_of(made.v.view(), 0, 0), got = rows_of(out.view(), 0, 0);
    double worst = 0.0;
    for (std::size_t row = 0; row < q.size(); ++row) {
      const oracle::AttendedRow exact =
          oracle::attended(q[row], k, v, 0.125, {}, static_cast<std::int64_t>(row));
      for (std::size_t e = 0; e < exact.out.size(); ++e)
        worst = std::max(worst, std::abs(got[row][e] - exact.out[e]));
    }
    for (const AttentionChoice& choice : report.choices) {
      const bool says_so = choice.explanation.find("rounding the output") != std::string::npos;
      // Values of at most 5 times `size`: 2^-8 of them is 2e-3 or 2e-2.
      EXPECT_EQ(says_so, size == 1.0F) << choice.explanation;
      EXPECT_EQ(choice.tolerance < atol, size != 1.0F) << choice.tolerance;
    }
    EXPECT_EQ(worst <= atol, size != 1.0F) << worst;
  }
}

// Numbers that f32 does not have, and scores that it does not: f64 has both.
TEST(AttentionPromise, Float64BeyondTheRangeOfF32) {
  const Sizes sizes{.queries = 20, .keys = 30, .depth = 8};
  for (const int which : {0, 1, 2}) {
    Made made = make_inputs(sizes, Kind::normal, 8, DType::f64);
    double scale = 1.0 / std::sqrt(8.0);
    if (which == 0)
      for (double& number : made.v.span<double>()) number *= 1e200;
    if (which == 1) {
      for (double& number : made.q.span<double>()) number *= 1e150;
      scale *= 1e-150;
    }
    if (which == 2) {
      for (double& number : made.q.span<double>()) number *= 1e30;
      for (double& number : made.k.span<double>()) number *= 1e30;
    }
    AttentionReport report;
    const Tensor out =
        attention(made.q, made.k, made.v, {.softmax_scale = scale, .report = &report});
    EXPECT_EQ(report.choices.at(0).rung, AttentionRung::exact);
    const oracle::Rows q = rows_of(made.q.view(), 0, 0), k = rows_of(made.k.view(), 0, 0),
                       v = rows_of(made.v.view(), 0, 0), got = rows_of(out.view(), 0, 0);
    for (std::size_t row = 0; row < q.size(); ++row) {
      const oracle::AttendedRow exact =
          oracle::attended(q[row], k, v, scale, {}, static_cast<std::int64_t>(row));
      // The same sums of f64 in another order.
      for (std::size_t e = 0; e < exact.out.size(); ++e)
        ASSERT_NEAR(got[row][e], exact.out[e], 1e-12 * (which == 0 ? 1e200 : 1.0))
            << "case " << which << ", row " << row;
    }
  }
}

// Sums of values times weights are in units of the values, so that they are as large as those.
TEST(AttentionPromise, LargeValuesStayFinite) {
  const Sizes sizes{.queries = 50, .keys = 300, .depth = 64};
  // Powers of two, so that codes are the same ones and the result is that many times as large,
  // except for packed V, rounded to f16 with its scale or after it: 2^-11 of elements of at most 4,
  // and rows attend to a hundred and more of them.
  for (const float times : {0x1p+118F, 0x1p+124F, 0x1p-100F})
    for (const BackendInfo& backend : support::every_backend())
      for (const AttentionRung rung : {AttentionRung::strict, AttentionRung::fast}) {
        Made made = make_inputs(sizes, Kind::normal, 6, DType::f32);
        const AttentionOptions options{.rung = rung, .backend = backend.kernels};
        const Tensor want = attention(made.q, made.k, made.v, options);
        for (float& number : made.v.span<float>()) number *= times;
        const Tensor got = attention(made.q, made.k, made.v, options);
        for (std::size_t i = 0; i < want.span<float>().size(); ++i)
          ASSERT_NEAR(got.span<float>()[i] / times, want.span<float>()[i], 1e-3)
              << octavo::name_of(rung) << " on " << backend.name << " at " << i;
      }
}

}  // namespace
}  // namespace octavo::testing
