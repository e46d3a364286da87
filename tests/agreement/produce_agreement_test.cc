// Every norm and activation on every backend against formulas in long double.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "octavo/base/error.h"
#include "tests/agreement/produce_cases.h"

namespace octavo::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Within the bound, and NaN and Inf where the formula has them.
template <typename Where>
void expect_near(double got, const oracle::Truth& truth, const Kernels& backend, Where&& describe) {
  // Those of a CPU compute in f64, those of a device in f32.
  const bool in_f32 = std::string_view(backend.name).starts_with("cuda");
  constexpr long double kLargest = 0x1.fffffep127L;
  if (truth.not_finite) {
    EXPECT_FALSE(std::isfinite(got)) << describe() << ": got " << got;
  } else if (std::isnan(truth.value)) {
    EXPECT_TRUE(std::isnan(got)) << describe() << ": got " << got << "; expected NaN";
  } else if (std::fabs(truth.value) > kLargest) {
    EXPECT_TRUE(std::fabs(got) >= kLargest && std::signbit(got) == std::signbit(truth.value))
        << describe() << ": got " << got << "; expected " << static_cast<double>(truth.value);
  } else {
    EXPECT_LE(std::fabs(static_cast<long double>(got) - truth.value),
              in_f32 ? truth.bound_f32 : truth.bound_f64)
        << describe() << ": got " << got << "; expected " << static_cast<double>(truth.value);
  }
}

std::vector<double> row_of(const Values& x, std::int64_t row, std::int64_t cols) {
  const auto first = x.numbers.begin() + row * cols;
  return {first, first + cols};
}

class ProduceAgreement : public ::testing::TestWithParam<NamedProducer> {
 protected:
  static void expect_agreement(const Values& x, const Production& production,
                               const std::string& where) {
    const Shape& shape = x.tensor.shape();
    const std::int64_t cols = shape[shape.rank() - 1];
    const std::int64_t rows = static_cast<std::int64_t>(x.numbers.size()) / cols;
    const bool norm = production.named.is_norm();
    std::vector<oracle::RowTruth> truths;
    for (std::int64_t row = 0; row < rows; ++row)
      truths.push_back(production.truth(row_of(x, row, cols)));
    for (const Kernels* backend : producing_backends()) {
      const std::string here = text(where, ", ", backend->name);
      const Tensor mean = Tensor::values({rows}, DType::f32);
      const Tensor inv_std = Tensor::values({rows}, DType::f32);
      const Produced values = norm ? production.of(x.tensor.view(), mean.view(), inv_std.view())
                                   : production.of(x.tensor.view());
      const Tensor out = produce(values, {.out = DType::f32, .backend = backend});
      ASSERT_EQ(out.shape(), values.shape) << here;
      const std::int64_t out_cols = values.shape[shape.rank() - 1];
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto at = static_cast<std::size_t>(row);
        const oracle::RowTruth& truth = truths[at];
        for (std::int64_t col = 0; col < out_cols; ++col)
          expect_near(
              static_cast<double>(out.span<float>()[at * static_cast<std::size_t>(out_cols) +
                                                    static_cast<std::size_t>(col)]),
              truth.values[static_cast<std::size_t>(col)], *backend,
              [&] { return text(here, ", row ", row, ", column ", col); });
        if (!norm || HasFailure()) continue;
        // In f64 an exact sum would be within rounding; n roundings are far below one in f32. In
        // f32 docs/numerics/producers.md has sums of relative error G, a mean off by (G + u) times
        // the mean magnitude A, and a root off by half of what the variance is: G + 4u, and D^2 for
        // the mean's error against the deviation; the root itself and the quotient take 8u.
        const bool in_f32 = std::string_view(backend->name).starts_with("cuda");
        const long double n = static_cast<long double>(cols), unit = 0x1p-24L;
        const long double sum_error = (n / 32 + 16) * unit;
        long double magnitude = 0;
        for (const double one : row_of(x, row, cols)) magnitude += std::fabs(one) / n;
        const bool has_mean = production.named.kind == oracle::Made::layer_norm;
        const long double mean_error = in_f32 && has_mean ? (sum_error + unit) * magnitude : 0;
        const long double apart = mean_error * truth.inv_std;
        const long double root_error =
            in_f32 ? truth.inv_std * (sum_error / 2 + 10 * unit + apart * apart / 2) : 0;
        const auto statistic = [&](float got, long double wanted, long double more,
                                   const char* what) {
          if (!std::isfinite(wanted)) return;  // then the row's values show it
          EXPECT_LE(std::fabs(got - wanted), 1.01L * oracle::rounded_bound(wanted) + 1e-14L + more)
              << here << ", row " << row << ", " << what;
        };
        statistic(inv_std.span<float>()[at], truth.inv_std, root_error, "inv_std");
        if (has_mean) statistic(mean.span<float>()[at], truth.mean, mean_error, "mean");
      }
      if (HasFailure()) return;
    }
  }
};

TEST_P(ProduceAgreement, EveryTypeAndShape) {
  const Shape shapes[] = {{1, 2}, {3, 8}, {5, 34}, {2, 3, 66}, {4, 130}, {40}, {3, 512}, {2, 4100}};
  std::uint32_t seed = 1;
  for (const Shape& shape : shapes) {
    const std::int64_t cols = shape[shape.rank() - 1];
    for (const DType dtype : kValueTypes) {
      for (const DType weight_type : {DType::f32, DType::bf16, DType::f64}) {
        const Production production(GetParam(), cols, weight_type);
        if (weight_type != DType::f32 && (!production.named.weighted || cols > 1000)) continue;
        expect_agreement(
            values_of(shape, dtype, random_numbers(element_count(shape), ++seed, cols)), production,
            text(GetParam().name, ", ", to_string(shape), " ", dtype_name(dtype)));
        if (HasFailure()) return;
      }
    }
  }
}

// One column: a norm of it is the bias, or a sign.
TEST_P(ProduceAgreement, OneColumn) {
  if (GetParam().gated) GTEST_SKIP() << "two halves of one column do not exist";
  const Production production(GetParam(), 1, DType::f32);
  expect_agreement(values_of({5, 1}, DType::f32, {0.5, -3.0, 0.0, 1e-20, 1e10}), production,
                   GetParam().name);
}

TEST_P(ProduceAgreement, NothingAtAll) {
  for (const Shape& shape : {Shape{0, 8}, Shape{4, 0}, Shape{2, 0, 6}}) {
    const Production production(GetParam(), shape[shape.rank() - 1], DType::f32);
    for (const Kernels* backend : producing_backends()) {
      const Tensor x = Tensor::values(shape, DType::f32);
      EXPECT_EQ(element_count(produce(production.of(x.view()), {.backend = backend}).shape()), 0);
    }
  }
}

// Both tails, both ends of f32, zeros and what is not finite, each in a row of its own and, for
// what is gated, with every other.
TEST_P(ProduceAgreement, Landmarks) {
  const std::vector<double> landmarks = {
      0.0,    -0.0,    1.0,   -1.0,  0.5,    -5.0,      5.0,        -9.0,   9.0,   -14.0,
      -20.0,  -40.0,   -88.0, -90.0, -104.0, 104.0,     -300.0,     -800.0, 800.0, 1e-30,
      -1e-45, 1.2e-38, 3e38,  -3e38, 65504., kInfinity, -kInfinity, kNan,   1e-5,  -1e-5};
  std::vector<double> rows;
  for (const double x : landmarks)
    for (const double gate : landmarks) rows.insert(rows.end(), {x, gate});
  const Production production(GetParam(), 2, DType::f32);
  for (const DType dtype : {DType::f32, DType::f64})
    expect_agreement(values_of({static_cast<std::int64_t>(rows.size()) / 2, 2}, dtype, rows),
                     production, text(GetParam().name, " of landmarks, ", dtype_name(dtype)));
}

// Every value of bf16, which reaches both ends of f32.
TEST_P(ProduceAgreement, EveryBf16) {
  if (GetParam().is_norm() || GetParam().gated) GTEST_SKIP() << "of one value only";
  std::vector<double> all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    all.push_back(oracle::value_of_bf16(static_cast<std::uint16_t>(bits)));
  expect_agreement(values_of({16, 4096}, DType::bf16, all),
                   Production(GetParam(), 4096, DType::f32), GetParam().name);
}

// 16-bit results are the f32 ones, rounded.
TEST_P(ProduceAgreement, SixteenBitsByWayOfF32) {
  const Values x = values_of({6, 50}, DType::f32, random_numbers(300, 9, 50));
  const Production production(GetParam(), 50, DType::bf16);
  for (const Kernels* backend : producing_backends()) {
    const Produced values = production.of(x.tensor.view());
    const Tensor f32 = produce(values, {.backend = backend});
    EXPECT_EQ(f32.dtype(), DType::f32);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const Tensor narrow = produce(values, {.out = dtype, .backend = backend});
      const Values wanted =
          values_of(f32.shape(), dtype, {f32.span<float>().begin(), f32.span<float>().end()});
      for (std::size_t i = 0; i < wanted.numbers.size(); ++i)
        ASSERT_EQ(narrow.span<std::uint16_t>()[i], wanted.tensor.span<std::uint16_t>()[i])
            << backend->name << ' ' << dtype_name(dtype) << ' ' << i;
    }
  }
}

// Rows with gaps, rows backwards, columns apart, and dimensions that do not collapse.
TEST_P(ProduceAgreement, AnyStrides) {
  const Values x = values_of({4, 6, 5, 16}, DType::f32, random_numbers(1920, 3, 16));
  const View all = x.tensor.view();
  View cut = all, transposed = all, backwards = all;
  cut.shape = {4, 3, 5, 8};
  transposed.shape = {16, 6, 5, 4};
  transposed.strides = {all.strides[3], all.strides[1], all.strides[2], all.strides[0]};
  backwards.data = static_cast<std::byte*>(all.data) + 3 * all.strides[0] + 15 * all.strides[3];
  backwards.strides = {-all.strides[0], all.strides[1], all.strides[2], -all.strides[3]};
  for (const View& view : {cut, transposed, backwards}) {
    const std::int64_t cols = view.shape[3];
    const Production production(GetParam(), cols, DType::f32);
    const Tensor dense = Tensor::values(view.shape, DType::f32);
    std::size_t at = 0;
    for (std::int64_t a = 0; a < view.shape[0]; ++a)
      for (std::int64_t b = 0; b < view.shape[1]; ++b)
        for (std::int64_t c = 0; c < view.shape[2]; ++c)
          for (std::int64_t d = 0; d < cols; ++d)
            std::memcpy(&dense.span<float>()[at++],
                        static_cast<const std::byte*>(view.data) + a * view.strides[0] +
                            b * view.strides[1] + c * view.strides[2] + d * view.strides[3],
                        sizeof(float));
    const std::int64_t rows = element_count(view.shape) / cols;
    for (const Kernels* backend : producing_backends()) {
      // Dense rows are made in f32 there, others in f64: within the bound, not the same.
      if (std::string_view(backend->name).starts_with("cuda")) continue;
      const Tensor found = Tensor::values({rows}, DType::f32),
                   wanted = Tensor::values({rows}, DType::f32);
      const bool norm = GetParam().is_norm();
      const Tensor got =
          produce(production.of(view, {}, norm ? found.view() : View{}), {.backend = backend});
      const Tensor plain = produce(production.of(dense.view(), {}, norm ? wanted.view() : View{}),
                                   {.backend = backend});
      EXPECT_TRUE(std::ranges::equal(got.bytes(), plain.bytes())) << backend->name;
      if (norm) {
        EXPECT_TRUE(std::ranges::equal(found.bytes(), wanted.bytes())) << backend->name;
      }
    }
  }
}

std::string name_of_case(const ::testing::TestParamInfo<NamedProducer>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Every, ProduceAgreement, ::testing::ValuesIn(every_producer()),
                         name_of_case);

}  // namespace
}  // namespace octavo::testing
