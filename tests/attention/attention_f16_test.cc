// Rung f16: inputs and weights in f16, sums in f32, on every backend against the oracle; and where
// `auto` takes it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/attention/attention_gate.h"

namespace octavo::testing {
namespace {

// f16 by its definition: eleven bits, steps of 2^-24 below 2^-14, and Inf from 65520 on.
double to_f16(double number) {
  if (number == 0.0 || !std::isfinite(number)) return number;
  const int exponent = std::max(-14, std::ilogb(number));
  const double step = std::ldexp(1.0, exponent - 10),
               rounded = std::nearbyint(number / step) * step;
  return std::abs(rounded) <= 65504.0
             ? rounded
             : std::copysign(std::numeric_limits<double>::infinity(), number);
}
oracle::Rows to_f16(oracle::Rows rows) {
  for (std::vector<double>& row : rows)
    for (double& number : row) number = to_f16(number);
  return rows;
}

double largest_of(const oracle::Rows& rows) {
  double most = 0.0;
  for (const std::vector<double>& row : rows)
    for (const double number : row) most = std::max(most, std::abs(number));
  return most;
}

// Of head 0, relative to the largest |v|.
double worst_of(const Tensor& out, const oracle::Rows& q, const oracle::Rows& k,
                const oracle::Rows& v, double softmax_scale) {
  const oracle::Rows got = rows_of(out.view(), 0, 0);
  double worst = 0.0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    const oracle::AttendedRow exact =
        oracle::attended(q[i], k, v, softmax_scale, {}, static_cast<std::int64_t>(i));
    for (std::size_t e = 0; e < exact.out.size(); ++e) {
      const double off = std::abs(got[i][e] - exact.out[e]);
      if (!(off <= worst)) worst = off;
    }
  }
  return worst / largest_of(v);
}

// Weights w_j that are off by d_j each move a row by sum_j w_j d_j (v_j - out), at most 2 d in
// units of the largest |v|: d is 2^-11, and 2^-16 for the score (D 2^-24 of sum |q k|, 14 here),
// the exponential and the sums. Rounding inputs to bf16 would be off by 2^-8 of a score alone.
constexpr double kMost = 2.0 * (0x1p-11 + 0x1p-16);

TEST(AttentionF16, IsAttentionOfInputsInF16) {
  const Sizes sizes{.queries = 70, .keys = 130, .depth = 64, .width = 48};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    Made made = make_inputs(sizes, Kind::normal, 3, dtype);
    const oracle::Rows q = to_f16(rows_of(made.q.view(), 0, 0)),
                       k = to_f16(rows_of(made.k.view(), 0, 0)),
                       v = to_f16(rows_of(made.v.view(), 0, 0));
    const AttentionInputs inputs =
        attention_inputs(made.q, made.k, made.v, {.rung = AttentionRung::f16});
    EXPECT_EQ(rows_of(inputs.q.view(), 0, 0), q) << dtype_name(dtype);
    EXPECT_EQ(rows_of(inputs.k.view(), 0, 0), k) << dtype_name(dtype);
    EXPECT_EQ(rows_of(inputs.v.view(), 0, 0), v) << dtype_name(dtype);
    for (const BackendInfo& backend : support::every_backend()) {
      const Tensor out =
          attention(made.q, made.k, made.v,
                    {.rung = AttentionRung::f16, .out = DType::f32, .backend = backend.kernels});
      EXPECT_LE(worst_of(out, q, k, v, 0.125), kMost) << backend.name << ", " << dtype_name(dtype);
    }
  }
}

// The definition: P times 256 in f16, one of which is 2^-14 below the other and loses bits.
TEST(AttentionF16, ReferenceRoundsWeightsToF16) {
  const std::vector<float> one = {1.0F}, scores = {0.0F, -3.25F, -9.7F, -20.0F},
                           values = {1.0F, -1.0F, 2.0F, 4.0F};
  const Tensor q = tensor_of({1, 1, 1, 1}, one, DType::f32),
               k = tensor_of({1, 1, 4, 1}, scores, DType::f16),
               v = tensor_of({1, 1, 4, 1}, values, DType::f16);
  const Tensor out = attention(q, k, v,
                               {.rung = AttentionRung::f16,
                                .softmax_scale = 1.0,
                                .out = DType::f64,
                                .backend = &reference_backend()});
  double above = 0.0, below = 0.0, exact_above = 0.0, exact_below = 0.0;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp(to_f16(static_cast<double>(scores[j]))), rounded = to_f16(256.0 * p),
                 value = static_cast<double>(values[j]);
    above += rounded * value;
    below += rounded;
    exact_above += p * value;
    exact_below += p;
  }
  EXPECT_NEAR(out.span<double>()[0], above / below, 0x1p-24);  // float64 on a rung is stored in f32
  EXPECT_GT(std::abs(above / below - exact_above / exact_below), 1e-6);  // which would not show
}

// Beyond 65504 there is nothing but Inf, whose rows are NaN; subnormal numbers stay.
TEST(AttentionF16, ValuesAtTheEdgesOfTheRange) {
  for (const BackendInfo& backend : support::every_backend()) {
    Made made = make_inputs({.queries = 4, .keys = 8, .depth = 16}, Kind::normal, 5, DType::f32);
    for (float& number : made.q.span<float>()) number = 0.0F;
    for (float& number : made.v.span<float>()) number = 0x1p-23F;
    made.k.span<float>()[0] = 65519.0F;  // the largest that rounds down
    const AttentionOptions options{
        .rung = AttentionRung::f16, .out = DType::f32, .backend = backend.kernels};
    Tensor out = attention(made.q, made.k, made.v, options);
    for (const float number : out.span<float>()) EXPECT_EQ(number, 0x1p-23F) << backend.name;
    made.k.span<float>()[0] = 65520.0F;
    out = attention(made.q, made.k, made.v, options);
    for (const float number : out.span<float>()) EXPECT_TRUE(std::isnan(number)) << backend.name;
  }
}

TEST(AttentionF16, MeetsTheGate) {
  EXPECT_EQ(expect_no_failures({.rung = AttentionRung::f16,
                                .sizes = {{128, 64, 0}, {512, 256, 48}, {2048, 128, 32}}}),
            3 * 4 * 2);
}

struct Chosen {
  std::int64_t f16 = 0, f32 = 0, others = 0;
};
Chosen chosen_for(const Made& made, AttentionOptions options) {
  AttentionReport report;
  options.report = &report;
  (void)attention(made.q, made.k, made.v, options);
  Chosen chosen;
  for (const AttentionChoice& choice : report.choices)
    (choice.rung == AttentionRung::f16   ? chosen.f16
     : choice.rung == AttentionRung::f32 ? chosen.f32
                                         : chosen.others) += choice.rows.count;
  return chosen;
}

// Inputs in f16 need not become f32 where bf16 is too coarse for them; others do.
TEST(AttentionF16, AutomaticTakesItForInputsInF16) {
  for (const bool is_certified : {false, true})
    for (const std::int64_t queries : {std::int64_t{1}, std::int64_t{256}}) {
      // Certified bounds are of the worst weights that there may be.
      const double atol = is_certified ? 1e-2 : 1.5e-3;
      const AttentionOptions options{.rtol = 0.0,
                                     .atol = atol,
                                     .mask = {.causal = true, .bottom_right = true},
                                     .out = DType::f32,
                                     .certified = is_certified};
      const Sizes sizes{.queries = queries, .keys = 256, .depth = 64};
      const Chosen halves = chosen_for(make_inputs(sizes, Kind::normal, 3, DType::f16), options);
      EXPECT_GT(halves.f16, 0) << (is_certified ? "certified" : "modelled");
      EXPECT_EQ(halves.f32, 0) << (is_certified ? "certified" : "modelled");
      const Chosen wide = chosen_for(make_inputs(sizes, Kind::normal, 3, DType::f32), options);
      EXPECT_EQ(wide.f16, 0);
      EXPECT_GT(wide.f32, 0);
      const Made made = make_inputs(sizes, Kind::normal, 3, DType::f16);
      Errors errors;
      compare(errors, attention(made.q, made.k, made.v, options).view(),
              {.q = made.q.view(),
               .k = made.k.view(),
               .v = made.v.view(),
               .sees = {.causal = true, .diagonal = 256 - queries}},
              spread_rows(sizes, std::min<std::int64_t>(queries, 64)));
      EXPECT_LE(errors.largest, atol);
    }
}

// Where f16 is not exact enough either, f32 is.
TEST(AttentionF16, AutomaticLeavesItWhereItIsTooCoarse) {
  const Made made =
      make_inputs({.queries = 64, .keys = 64, .depth = 64}, Kind::normal, 3, DType::f16);
  const Chosen chosen = chosen_for(made, {.rtol = 0.0, .atol = 1e-5, .out = DType::f32});
  EXPECT_EQ(chosen.f32, 64);
}

// Codes beside values in f16 are used as they are.
TEST(AttentionF16, CodesBesideF16) {
  const Made made =
      make_inputs({.queries = 1, .keys = 300, .depth = 64}, Kind::normal, 3, DType::f16);
  const QuantizedTensor k = quantize(made.k.view(), preset("fp8-channel")),
                        v = quantize(made.v.view(), preset("fp8-channel"));
  const Tensor out = attention(made.q, k, v, {.rung = AttentionRung::f16, .out = DType::f32});
  EXPECT_LE(worst_of(out, rows_of(made.q.view(), 0, 0), rows_of(k, 0, 0), rows_of(v, 0, 0), 0.125),
            kMost);
}

}  // namespace
}  // namespace octavo::testing
