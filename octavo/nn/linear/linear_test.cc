#include "octavo/nn/linear/linear.h"

#include <gtest/gtest.h>

#include "octavo/nn/linear/nn_testing_internal.h"
#include "octavo/ops/gemm.h"

namespace octavo {
namespace {

TEST(Linear, NumbersThatCanBeDoneByHand) {
  const Tensor w = Tensor::values({2, 3}, DType::f32), bias = Tensor::values({2}, DType::f32),
               x = Tensor::values({1, 3}, DType::f32), dy = Tensor::values({1, 2}, DType::f32);
  std::ranges::copy(std::vector<float>{1, 2, 3, -1, 0, 4}, w.span<float>().begin());
  std::ranges::copy(std::vector<float>{10, 20}, bias.span<float>().begin());
  std::ranges::copy(std::vector<float>{1, -1, 2}, x.span<float>().begin());
  std::ranges::copy(std::vector<float>{2, -1}, dy.span<float>().begin());
  const auto list = [](const Tensor& tensor) {
    return std::vector<float>(tensor.span<float>().begin(), tensor.span<float>().end());
  };
  Linear layer(w, bias);
  EXPECT_EQ(list(layer.forward(x)), (std::vector<float>{15, 27}));
  EXPECT_EQ(list(layer.backward(dy)), (std::vector<float>{3, 4, 2}));
  EXPECT_EQ(list(layer.weight_grad()), (std::vector<float>{2, -2, 4, -1, 1, -2}));
  EXPECT_EQ(list(layer.bias_grad()), (std::vector<float>{2, -1}));
}

TEST(Linear, FirstWeights) {
  const Linear layer(16, 64, {.seed = 3}), again(16, 64, {.seed = 3}), other(16, 64, {.seed = 4});
  EXPECT_TRUE(same_bits(layer.weight(), again.weight()));
  EXPECT_FALSE(same_bits(layer.weight(), other.weight()));
  double sum = 0, squares = 0;
  int within = 0;
  for (const float value : layer.weight().span<float>()) {
    if (std::abs(value) <= 0.023F) ++within;
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  // 1024 normal draws of deviation d = 0.023: the estimates of mean and variance have deviations of
  // d / 32 and d^2 sqrt(2) / 32; five of them.
  constexpr double kDeviation = 0.023, kVariance = kDeviation * kDeviation;
  EXPECT_NEAR(sum / 1024, 0.0, 5 * kDeviation / 32);
  EXPECT_NEAR(squares / 1024, kVariance, 5 * kVariance * std::sqrt(2.0) / 32);
  // 68.27 % of a normal distribution lie within its deviation, give or take five times
  // sqrt(0.6827 * 0.3173 * 1024) = 14.9; of a uniform one of that variance 57.7 % would.
  EXPECT_NEAR(static_cast<double>(within), 0.6827 * 1024, 75.0);
  for (const float value : layer.bias().span<float>()) EXPECT_EQ(value, 0.0F);
  EXPECT_EQ(Linear(4, 4, {.bias = false}).bias().view().data, nullptr);
}

TEST(Linear, TypesOfValues) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    Linear layer(16, 8, {.params_dtype = dtype});
    Linear plain(16, 8);
    EXPECT_EQ(layer.weight().dtype(), dtype);
    const Tensor x = noise({4, 16}, 0.3);
    const Tensor y = layer.forward(x);
    EXPECT_EQ(y.dtype(), DType::f32);     // that of x
    for (std::size_t i = 0; i < 32; ++i)  // weights rounded to 8 bits: 16 terms of 0.25 at most
      EXPECT_NEAR(y.span<float>()[i], plain.forward(x).span<float>()[i], 16 * 0.25F * 0x1p-9F);
    EXPECT_EQ(layer.backward(noise({4, 8}, 0.4)).dtype(), DType::f32);
    EXPECT_EQ(layer.weight_grad().dtype(), dtype);
    EXPECT_EQ(layer.bias_grad().dtype(), dtype);
  }
}

// As experts get where no token goes to them: results without rows, and gradients of zeros.
TEST(Linear, ABatchWithoutRows) {
  const std::vector<std::optional<Recipe>> recipes{
      std::nullopt,         Recipe(DelayedScaling{}),    Recipe(Float8CurrentScaling{}),
      Float8BlockScaling{}, Recipe(MXFP8BlockScaling{}), Recipe(NVFP4BlockScaling{})};
  const auto is_zero = [](const Tensor& tensor) {
    return std::ranges::all_of(tensor.span<float>(), [](float value) { return value == 0.0F; });
  };
  for (const std::optional<Recipe>& recipe : recipes) {
    SCOPED_TRACE(recipe ? recipe->name() : "none");
    for (const Shape& shape : {Shape{0, 32}, Shape{3, 0, 32}}) {
      Linear layer(32, 16);
      Shape y_shape = shape;
      y_shape[shape.rank() - 1] = 16;
      Tensor y;
      {
        std::optional<Autocast> scope;
        if (recipe) scope.emplace(*recipe);
        y = layer.forward(Tensor::values(shape, DType::f32));
      }
      EXPECT_EQ(y.shape(), y_shape);
      EXPECT_EQ(layer.backward(Tensor::values(y_shape, DType::f32)).shape(), shape);
      EXPECT_EQ(layer.weight_grad().shape(), (Shape{16, 32}));
      EXPECT_TRUE(is_zero(layer.weight_grad()));
      EXPECT_TRUE(is_zero(layer.bias_grad()));
    }
  }
}

TEST(Linear, SavedForBackwardAreCodes) {
  Linear layer(64, 32);
  const auto scope = autocast(MXFP8BlockScaling{});
  (void)layer.forward(noise({32, 64}, 0.3));
  EXPECT_EQ(layer.saved().x.view().data, nullptr);
  EXPECT_FALSE(layer.saved().x_codes.rowwise.exists());
  EXPECT_EQ(layer.saved().x_nbytes(), 32 * 64 + 64);  // the transpose: 64 rows of one tile
}

TEST(Linear, OnlyWhatIsNeededIsQuantized) {
  Linear layer(64, 32);
  const auto scope = autocast(MXFP8BlockScaling{});
  (void)layer.forward(noise({32, 64}, 0.3), {.needs_dx = false, .is_first_microbatch = true});
  EXPECT_FALSE(layer.weight_cache().codes->columnwise.exists());
  EXPECT_EQ(layer.backward(noise({32, 32}, 0.4)).view().data, nullptr);
  EXPECT_EQ(layer.weight_grad().shape(), (Shape{32, 64}));
  EXPECT_FALSE(layer.quantizers("scaling_bwd")->at(0).scaling().rowwise);
  // The cache has no columnwise copy: it is made when it is wanted.
  (void)layer.forward(noise({32, 64}, 0.3), {.is_first_microbatch = false});
  EXPECT_TRUE(layer.weight_cache().codes->columnwise.exists());
  EXPECT_EQ(layer.backward(noise({32, 32}, 0.4)).shape(), (Shape{32, 64}));
}

TEST(Linear, TheWeightIsQuantizedOncePerBatch) {
  Linear layer(64, 32);
  const Tensor x = noise({32, 64}, 0.3);
  const auto scope = autocast(MXFP8BlockScaling{});
  const Tensor first = layer.forward(x, {.is_first_microbatch = true});
  const auto codes = layer.weight_cache().codes;
  ASSERT_NE(codes, nullptr);
  layer.weight().span<float>()[7] += 1.0F;
  EXPECT_TRUE(same_bits(layer.forward(x, {.is_first_microbatch = false}), first));
  EXPECT_EQ(layer.weight_cache().codes, codes);
  EXPECT_FALSE(same_bits(layer.forward(x), first));  // not asked to keep: quantized anew
  EXPECT_EQ(layer.weight_cache().codes, codes);
  EXPECT_FALSE(same_bits(layer.forward(x, {.is_first_microbatch = true}), first));
  EXPECT_NE(layer.weight_cache().codes, codes);
  // Another recipe drops it.
  const auto other = autocast(Float8BlockScaling{});
  (void)layer.forward(x);
  EXPECT_EQ(layer.weight_cache().codes, nullptr);
}

TEST(Linear, CodesThatWereKeptAreOfTheWeight) {
  const Tensor x = noise({4, 32}, 0.3);
  ModuleQuantizers quantizers;
  WeightCache cache;
  const auto scope = autocast(MXFP8BlockScaling{});
  const auto forward = [&](const Tensor& weight, bool is_first) {
    LinearCall call{.x = x, .weight = {.values = weight}};
    call.is_first_microbatch = is_first;
    call.quantizers = &quantizers;
    call.cache = &cache;
    return linear_forward(call);
  };
  (void)forward(noise({32, 32}, 0.4), true);
  const auto [code, message] = error_of([&] { (void)forward(noise({16, 32}, 0.4), false); });
  EXPECT_EQ(code, ErrorCode::invalid_argument);
  EXPECT_EQ(message,
            "[Linear] the weight has shape [16, 32], and its codes that were kept from an earlier "
            "micro-batch have [32, 32]; say is_first_microbatch = true (or leave it out) after the "
            "weight was replaced");
  EXPECT_EQ(forward(noise({16, 32}, 0.4), true).shape(), (Shape{4, 16}));
}

TEST(Linear, SeveralForwardsOnTheirWay) {
  Linear layer(8, 4), plain(layer.weight(), layer.bias());
  const Tensor a = noise({2, 8}, 0.3), b = noise({3, 8}, 0.4), da = noise({2, 4}, 0.5),
               db = noise({3, 4}, 0.6);
  LinearSaved first, second;
  (void)layer.forward(a, first);
  (void)layer.forward(b, second);
  const Tensor dx = layer.backward(da, first);
  (void)plain.forward(a);
  EXPECT_TRUE(same_bits(dx, plain.backward(da)));
  EXPECT_EQ(layer.backward(db, second).shape(), (Shape{3, 8}));
}

TEST(Linear, MemoryOfTheCaller) {
  std::int64_t bytes = 0;
  const LinearRun run{.make = [&](const View& like) {
    Tensor made = like.dtype == DType::code ? Tensor::codes(like.shape, like.format, like.packed)
                                            : Tensor::values(like.shape, like.dtype);
    bytes += made.nbytes();
    return made;
  }};
  const Tensor w = noise({32, 64}, 0.2), bias = noise({32}, 0.6), x = noise({96, 64}, 0.3),
               dy = noise({96, 32}, 0.4);
  for (const auto override : {BackwardOverride::none, BackwardOverride::dequantized}) {
    const bool quantizes = override == BackwardOverride::none;
    Linear theirs(w, bias, {.run = run}), ours(w, bias);
    bytes = 0;
    const auto scope = autocast(MXFP8BlockScaling{.backward_override = override});
    EXPECT_TRUE(same_bits(theirs.forward(x), ours.forward(x)));
    EXPECT_TRUE(same_bits(theirs.backward(dy), ours.backward(dy)));
    EXPECT_TRUE(same_bits(theirs.weight_grad(), ours.weight_grad()));
    EXPECT_TRUE(same_bits(theirs.bias_grad(), ours.bias_grad()));
    // Every code has 1/32 of a scale (all sizes are multiples of 32), and there are two copies of
    // each operand, or else one of x and w, and their values.
    const std::int64_t results = 4 * (96 * 32 + 96 * 64 + 32 * 64 + 32);
    const std::int64_t codes = quantizes ? 2 * (96 * 64 + 32 * 64 + 96 * 32) : 96 * 64 + 32 * 64;
    const std::int64_t values = quantizes ? 0 : 4 * (96 * 64 + 32 * 64);
    EXPECT_EQ(bytes, results + codes + codes / 32 + values);
  }
}

TEST(Linear, BadInputIsNamed) {
  using enum ErrorCode;
  const auto expect = [](auto&& work, ErrorCode code, std::string_view text) {
    const auto [got, message] = error_of(work);
    EXPECT_EQ(got, code) << message;
    EXPECT_TRUE(message.starts_with("[Linear] ")) << message;
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  Linear layer(8, 4);
  const auto forward = [&](const Tensor& x) { return [&layer, x] { (void)layer.forward(x); }; };
  expect(forward(noise({2, 7}, 0.1)), invalid_argument, "x has shape [2, 7]; expected [..., 8]");
  expect(forward(noise({8}, 0.1)), invalid_argument, "x has shape [8]; expected [..., 8]");
  expect(forward(Tensor::codes({2, 8}, e4m3fn)), wrong_type, "x holds codes");
  expect(forward(Tensor{}), invalid_argument, "x has 1 elements but no memory");
  const Tensor wide = noise({2, 3, 16}, 0.1);
  View gaps = wide.view();
  gaps.shape = {2, 2, 8};  // two of three rows: no one stride
  expect(forward(Tensor::adopt(gaps, wide.owner())), invalid_argument, "not one run of memory");
  expect(
      [&] {
        (void)layer.backward(noise({2, 4}, 0.1));
      },
      unsupported, "backward without a forward");
  (void)layer.forward(noise({2, 8}, 0.1));
  expect(
      [&] {
        (void)layer.backward(noise({2, 8}, 0.1));
      },
      invalid_argument, "dy has shape [2, 8]; expected that of y, [2, 4]");
  expect(
      [&] {
        (void)layer.backward(Tensor::codes({2, 4}, e4m3fn));
      },
      wrong_type, "dy holds codes");
  (void)layer.backward(noise({2, 4}, 0.1));  // what was wrong has used nothing up
  expect(
      [&] {
        (void)layer.backward(noise({2, 4}, 0.1));
      },
      unsupported, "backward without a forward");
  expect([] { (void)Linear(0, 4); }, invalid_argument, "in_features = 0");
  expect([] { (void)Linear(4, 4, {.params_dtype = DType::code}); }, wrong_type, "params_dtype");
  expect([] { (void)Linear(noise({4}, 0.1)); }, invalid_argument, "the weight has shape [4]");
  expect(
      [] {
        (void)Linear(noise({4, 4}, 0.1), noise({3}, 0.1));
      },
      invalid_argument, "the bias has shape [3]; expected [4]");
  expect(
      [&] {
        layer.set_quantized_weight(noise({4, 8}, 0.1).view());
      },
      unsupported, "the weight is not codes");
}

TEST(Linear, StridedInput) {
  Linear layer(8, 4);
  const Tensor wide = noise({6, 16}, 0.1), dense = Tensor::values({6, 8}, DType::f32);
  View half = wide.view();
  half.shape = {6, 8};
  for (std::size_t i = 0; i < 48; ++i)
    dense.span<float>()[i] = wide.span<float>()[i / 8 * 16 + i % 8];
  for (const bool enabled : {false, true}) {
    const auto scope = autocast(MXFP8BlockScaling{}, {.enabled = enabled});
    EXPECT_TRUE(same_bits(layer.forward(Tensor::adopt(half, wide.owner())), layer.forward(dense)));
  }
}

}  // namespace
}  // namespace octavo
