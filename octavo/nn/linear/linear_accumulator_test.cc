// What the products of a layer are summed in, by recipe or by layer.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "octavo/nn/linear/linear.h"
#include "octavo/nn/linear/nn_testing_internal.h"
#include "octavo/ops/gemm.h"
#include "tests/oracle/gemm_oracle.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

// Ragged, and longer along each K (kIn, kOut, kRows) than a run of f16 sums.
constexpr std::int64_t kRows = 133, kIn = 136, kOut = 134;

struct Case {
  std::string name;
  std::function<Recipe(Accumulator)> recipe;
  std::function<std::shared_ptr<Quantizer>(TensorRole)> quantizer;
};

std::vector<Case> cases() {
  using enum TensorRole;
  const auto format = [](TensorRole role) { return role == grad_output ? e5m2 : e4m3fn; };
  return {
      {"current", [](Accumulator sums) { return Float8CurrentScaling{.accumulator = sums}; },
       [=](TensorRole role) {
         return std::make_shared<Float8CurrentScalingQuantizer>(
             Float8CurrentScalingOptions{.format = format(role)});
       }},
      {"block", [](Accumulator sums) { return Float8BlockScaling{.accumulator = sums}; },
       [](TensorRole role) {
         return std::make_shared<Float8BlockQuantizer>(
             Float8BlockOptions{.block_dims = role == weight ? 2 : 1});
       }},
      {"mxfp8", [](Accumulator sums) { return MXFP8BlockScaling{.accumulator = sums}; },
       [](TensorRole) { return std::make_shared<MXFP8Quantizer>(); }},
      {"mxfp8, hybrid",
       [](Accumulator sums) {
         return MXFP8BlockScaling{.fp8_format = RecipeFormat::HYBRID, .accumulator = sums};
       },
       [=](TensorRole role) {
         return std::make_shared<MXFP8Quantizer>(MXFP8Options{.format = format(role)});
       }},
      {"nvfp4",
       [](Accumulator sums) {
         return NVFP4BlockScaling{.disable_stochastic_rounding = true, .accumulator = sums};
       },
       [](TensorRole role) {
         return std::make_shared<NVFP4Quantizer>(
             NVFP4Options{.with_rht = role != weight, .two_dimensional = role == weight});
       }},
  };
}

struct Results {
  Tensor y, dx, dw;
};

struct Tensors {
  Tensor x = noise({kRows, kIn}, 0.3), w = noise({kOut, kIn}, 0.5, 0.1),
         dy = noise({kRows, kOut}, 0.7, 1e-3);

  [[nodiscard]] Results of_layer(const Recipe& recipe, Accumulator own) const {
    Linear layer(w, {}, {.run = {.accumulator = own}});
    Results results;
    {
      const auto scope = autocast(recipe);
      results.y = layer.forward(x);
    }
    // A scope of another recipe has no effect.
    const auto other = autocast(Float8CurrentScaling{});
    results.dx = layer.backward(dy);
    results.dw = layer.weight_grad();
    return results;
  }
};

void expect_same(const Results& got, const Results& wanted) {
  EXPECT_TRUE(same_bits(got.y, wanted.y));
  EXPECT_TRUE(same_bits(got.dx, wanted.dx));
  EXPECT_TRUE(same_bits(got.dw, wanted.dw));
}

// docs/numerics/gemm.md, float16: the oracle decodes by tables of its own and sums in f64.
void expect_within_bound(const Tensor& got, const QuantizedTensor& a, const QuantizedTensor& b) {
  const oracle::Numbers left = oracle::numbers_of(a), right = oracle::numbers_of(b);
  int beyond = 0;
  for (std::int64_t row = 0; row < got.shape()[0]; ++row)
    for (std::int64_t col = 0; col < got.shape()[1]; ++col) {
      const oracle::Element exact = oracle::element_of(left, right, row, col);
      double bound = oracle::bound_f16(left, right, row, col, exact.magnitude);
      bound += oracle::bound_rounded(std::fabs(exact.sum) + bound, got.dtype());
      beyond += !(std::fabs(oracle::number_at(got.view(), row, col) - exact.sum) <= bound);
    }
  EXPECT_EQ(beyond, 0);
}

TEST(LinearAccumulator, EveryProductSumsAsTheRecipeSays) {
  const Tensors in;
  for (const Case& at : support::some_of(cases())) {
    SCOPED_TRACE(at.name);
    const Results half = in.of_layer(at.recipe(Accumulator::f16), Accumulator::native);
    const QuantizedTensor x = at.quantizer(TensorRole::input)->quantize(in.x.view()),
                          w = at.quantizer(TensorRole::weight)->quantize(in.w.view()),
                          dy = at.quantizer(TensorRole::grad_output)->quantize(in.dy.view());
    const QuantizedTensor x_transposed = transposed(x), w_transposed = transposed(w),
                          dy_transposed = transposed(dy);
    const GemmOptions sums{.accumulator = Accumulator::f16};
    expect_same(half, {gemm(x, w, sums), gemm(dy, w_transposed, sums),
                       gemm(dy_transposed, x_transposed, sums)});
    expect_within_bound(half.y, x, w);
    expect_within_bound(half.dx, dy, w_transposed);
    expect_within_bound(half.dw, dy_transposed, x_transposed);

    const Results wide = in.of_layer(at.recipe(Accumulator::native), Accumulator::native);
    if (at.name == "nvfp4") continue;  // sixteen products of it are exact in either
    EXPECT_FALSE(same_bits(half.y, wide.y));
    EXPECT_FALSE(same_bits(half.dx, wide.dx));
    EXPECT_FALSE(same_bits(half.dw, wide.dw));
  }
}

TEST(LinearAccumulator, ALayerThatNamesOneKeepsIt) {
  const Tensors in;
  const auto recipe = [](Accumulator sums) { return MXFP8BlockScaling{.accumulator = sums}; };
  const Results half = in.of_layer(recipe(Accumulator::f16), Accumulator::native),
                wide = in.of_layer(recipe(Accumulator::f32), Accumulator::native);
  expect_same(in.of_layer(recipe(Accumulator::f16), Accumulator::f32), wide);
  expect_same(in.of_layer(recipe(Accumulator::native), Accumulator::f16), half);
}

TEST(LinearAccumulator, TensorCoreSumsByRecipe) {
  const Tensors in;
  const Float8CurrentScaling recipe{.accumulator = Accumulator::hopper_fp8};
  const Float8CurrentScaling plain{};
  expect_same(in.of_layer(recipe, Accumulator::native),
              in.of_layer(plain, Accumulator::hopper_fp8));
}

TEST(LinearAccumulator, NotOfFloat64) {
  Linear layer(noise<double>({4, 32}, 0.3));
  const auto scope = autocast(MXFP8BlockScaling{.accumulator = Accumulator::f16});
  const auto [code, message] = error_of([&] { (void)layer.forward(noise<double>({2, 32}, 0.4)); });
  EXPECT_EQ(code, ErrorCode::wrong_type);
  EXPECT_NE(message.find("got accumulator float16 with float64 tensors"), std::string::npos)
      << message;
  EXPECT_EQ(layer.quantizers("scaling_fwd"), nullptr);
}

}  // namespace
}  // namespace octavo
