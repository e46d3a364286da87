#include "octavo/quant/quantizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/quant/delayed.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor values_of(const Shape& shape, const std::vector<float>& values) {
  Tensor tensor = Tensor::values(shape, DType::f32);
  std::ranges::copy(values, tensor.span<float>().begin());
  return tensor;
}

// Numbers of many magnitudes, the same every time.
Tensor ramp(const Shape& shape) {
  Tensor tensor = Tensor::values(shape, DType::f32);
  std::uint32_t state = 1;
  for (float& value : tensor.span<float>()) {
    state = state * 1664525u + 1013904223u;
    value = std::ldexp(static_cast<float>(state >> 8) * 0x1p-23F - 1.0F,
                       static_cast<int>(state >> 4 & 7));
  }
  return tensor;
}

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  std::vector<std::uint8_t> out;
  for (const std::byte byte : tensor.bytes()) out.push_back(std::to_integer<std::uint8_t>(byte));
  return out;
}
float scale_of(const QuantizedCopy& copy) { return copy.scales.span<float>()[0]; }

std::vector<std::uint8_t> transposed_bytes(const Tensor& codes) {
  const std::int64_t rows = codes.shape()[0], cols = codes.shape()[1];
  std::vector<std::uint8_t> out;
  for (std::int64_t col = 0; col < cols; ++col)
    for (std::int64_t row = 0; row < rows; ++row)
      out.push_back(codes.span<std::uint8_t>()[static_cast<std::size_t>(row * cols + col)]);
  return out;
}

template <typename Call>
void refuses(Call&& call, const std::string& part, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

struct DelayedFixture {
  Tensor inv_scale = values_of({1}, {2}), amax = values_of({1}, {0});
  Float8Quantizer quantizer{{.inv_scale = inv_scale.view(), .amax = amax.view()}};
};

TEST(Float8Quantizer, TakesItsScaleFromTheCallerAndGathersTheAmax) {
  DelayedFixture f;
  const QuantizedTensor q = f.quantizer.quantize(values_of({1, 3}, {1, -3, 0.5F}).view());
  EXPECT_EQ(bytes_of(q.rowwise.codes), (std::vector<std::uint8_t>{0x40, 0xCC, 0x38}));  // 2, -6, 1
  EXPECT_EQ(bytes_of(q.columnwise.codes), bytes_of(q.rowwise.codes));
  EXPECT_EQ(q.columnwise.codes.shape(), (Shape{3, 1}));
  EXPECT_EQ(scale_of(q.rowwise), 0.5F);
  EXPECT_EQ(scale_of(q.columnwise), 0.5F);
  EXPECT_EQ(f.amax.span<float>()[0], 3.0F);
  (void)f.quantizer.quantize(values_of({1}, {-0.25F}).view());
  EXPECT_EQ(f.amax.span<float>()[0], 3.0F);
  EXPECT_EQ(f.quantizer.dequantize(q).span<float>()[1], -3.0F);
  float found = 0;
  (void)f.quantizer.quantize(values_of({1}, {300}).view(), {.amax = &found});
  EXPECT_EQ(found, 300.0F);
  EXPECT_EQ(f.amax.span<float>()[0], 300.0F);
}

TEST(Float8Quantizer, WhatTheOldScaleIsTooLargeForSaturates) {
  DelayedFixture f;
  const QuantizedTensor q = f.quantizer.quantize(values_of({4}, {1000, -kInf, kNan, -kNan}).view());
  EXPECT_EQ(bytes_of(q.rowwise.codes), (std::vector<std::uint8_t>{0x7E, 0xFE, 0x7F, 0x7F}));
  EXPECT_EQ(f.amax.span<float>()[0], kInf);
  EXPECT_EQ(scale_of(q.rowwise), 0.5F);
}

TEST(Float8Quantizer, StepsWithAHistory) {
  const Tensor history = Tensor::values({3, 2}, DType::f32),
               inv_scale = Tensor::values({2}, DType::f32);
  const DelayedState state{history.view(), inv_scale.view(), {}, {}};
  reset_delayed(state);
  View second_amax = history.view(), second_scale = inv_scale.view();
  second_amax.data = &history.span<float>()[1];
  second_scale.data = &inv_scale.span<float>()[1];
  second_amax.shape = second_scale.shape = second_amax.strides = second_scale.strides = {1};
  Float8Quantizer quantizer({.inv_scale = second_scale, .amax = second_amax, .columnwise = false});
  // The first step has no history and a scale of one; the second uses the first's amax, 7.
  const Tensor values = values_of({2}, {7, 0.5F});
  EXPECT_EQ(scale_of(quantizer.quantize(values.view()).rowwise), 1.0F);
  update_delayed(state, {});
  EXPECT_EQ(scale_of(quantizer.quantize(values.view()).rowwise), 1.0F / 64);
  EXPECT_EQ(inv_scale.span<float>()[0], 1.0F);
}

TEST(Float8Quantizer, RefusesStateItCannotUse) {
  const Tensor good = values_of({1}, {1}), two = values_of({2}, {1, 1});
  const auto with = [&](const View& inv_scale, const View& amax) {
    return [=] { (void)Float8Quantizer({.inv_scale = inv_scale, .amax = amax}); };
  };
  refuses(with({}, good.view()), "inv_scale has no memory");
  refuses(with(good.view(), {}), "amax has no memory");
  refuses(with(two.view(), good.view()), "inv_scale has shape [2]; expected one");
  refuses(with(good.view(), as_read_only(good.view())), "amax is read-only");
  refuses(with(Tensor::values({1}, DType::f64).view(), good.view()), "float64; expected float32",
          ErrorCode::wrong_type);
  for (const float bad : {0.0F, -1.0F, kInf, kNan}) {
    DelayedFixture f;
    f.inv_scale.span<float>()[0] = bad;
    refuses([&] { (void)f.quantizer.quantize(values_of({1}, {1}).view()); }, "positive, finite");
    EXPECT_EQ(f.amax.span<float>()[0], 0.0F);
  }
}

TEST(Float8CurrentScalingQuantizer, ByHand) {
  const Tensor seven = values_of({1, 3}, {1, -7, 0.25F}), three = values_of({2}, {3, 1});
  Float8CurrentScalingQuantizer plain;
  const QuantizedTensor q = plain.quantize(seven.view());
  EXPECT_EQ(scale_of(q.rowwise), 1.0F / 64);
  EXPECT_EQ(bytes_of(q.rowwise.codes), (std::vector<std::uint8_t>{0x68, 0xFE, 0x58}));
  EXPECT_EQ(bytes_of(q.columnwise.codes), bytes_of(q.rowwise.codes));

  Float8CurrentScalingQuantizer power({.columnwise = false, .power_of_two = true});
  EXPECT_EQ(scale_of(power.quantize(three.view()).rowwise), 1.0F / 128);  // 448 / 3 = 149.3
  Float8CurrentScalingQuantizer gradient({.format = e5m2, .columnwise = false});
  EXPECT_EQ(scale_of(gradient.quantize(seven.view()).rowwise), 1.0F / 8192);
  Float8CurrentScalingQuantizer epsilon({.columnwise = false, .min_amax = 7});
  EXPECT_EQ(scale_of(epsilon.quantize(three.view()).rowwise), 1.0F / 64);
  EXPECT_EQ(scale_of(plain.quantize(values_of({1, 2}, {0, 0}).view()).rowwise), 1.0F);
  EXPECT_EQ(scale_of(plain.quantize(values_of({1, 2}, {kInf, 2}).view()).rowwise), 1.0F);
  EXPECT_EQ(scale_of(plain.quantize(values_of({1, 2}, {kNan, 7}).view()).rowwise), 1.0F / 64);
}

TEST(Float8CurrentScalingQuantizer, SharesItsAmax) {
  float seen = 0;
  Float8CurrentScalingQuantizer quantizer({.reduce_amax = [&](float amax) {
    seen = amax;
    return 14.0F;
  }});
  const QuantizedTensor q = quantizer.quantize(values_of({1, 3}, {1, -7, kNan}).view());
  EXPECT_EQ(seen, 7.0F);
  EXPECT_EQ(scale_of(q.rowwise), 1.0F / 32);
  EXPECT_EQ(scale_of(q.columnwise), 1.0F / 32);

  for (const bool power_of_two : {false, true}) {
    const Tensor values = ramp({17, 33});
    Float8CurrentScalingQuantizer alone({.power_of_two = power_of_two});
    Float8CurrentScalingQuantizer shared(
        {.power_of_two = power_of_two, .reduce_amax = [](float amax) { return amax; }});
    const QuantizedTensor a = alone.quantize(values.view()), b = shared.quantize(values.view());
    EXPECT_EQ(bytes_of(a.rowwise.codes), bytes_of(b.rowwise.codes));
    EXPECT_EQ(scale_of(a.rowwise), scale_of(b.rowwise));
  }
}

TEST(Float8BlockQuantizer, HasTilesOf128) {
  const Tensor values = ramp({3, 300});
  Float8BlockQuantizer rows({.power_of_two = false, .block_dims = 1});
  const QuantizedTensor one = rows.quantize(values.view());
  EXPECT_EQ(one.rowwise.scales.shape(), (Shape{3, 3}));
  EXPECT_EQ(one.columnwise.scales.shape(), (Shape{300, 1}));
  float largest = 0;
  for (int i = 0; i < 128; ++i)
    largest = std::max(largest, std::fabs(values.span<float>()[static_cast<std::size_t>(i)]));
  EXPECT_EQ(scale_of(one.rowwise), 1.0F / (448.0F / largest));

  Float8BlockQuantizer weights;
  const QuantizedTensor two = weights.quantize(values.view());
  EXPECT_EQ(two.rowwise.scales.shape(), (Shape{1, 3}));
  EXPECT_EQ(two.columnwise.scales.shape(), (Shape{3, 1}));
  EXPECT_EQ(bytes_of(two.columnwise.codes), transposed_bytes(two.rowwise.codes));
  for (const float scale : two.rowwise.scales.span<float>()) {
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5F);
  }
  refuses([] { Float8BlockQuantizer({.block_dims = 3}); }, "block_dims = 3");
  refuses([] { Float8BlockQuantizer({.min_amax = -1}); }, "min_amax");
}

TEST(MXFP8Quantizer, OfASmallWeight) {
  const Tensor values = ramp({32, 32});
  MXFP8Quantizer quantizer;
  const QuantizedTensor q = quantizer.quantize(values.view());
  EXPECT_EQ(q.nbytes(), 2112);  // 1024 codes and 32 scales, twice
  EXPECT_EQ(q.rowwise.scales.shape(), (Shape{32, 1}));
  EXPECT_EQ(q.rowwise.scales.format(), e8m0fnu);
  const Tensor back = quantizer.dequantize(q);
  for (std::size_t i = 0; i < 1024; ++i)
    // Half a step of the tile's largest value: 448 / 14 / 2 is 16 in codes, scales at most 2 * 120
    // / 448, and 2^7 bounds the values.
    EXPECT_NEAR(back.span<float>()[i], values.span<float>()[i], 16.0F * 0.5F);

  MXFP8Quantizer weights({.format = e5m2, .two_dimensional = true});
  const QuantizedTensor two = weights.quantize(values.view());
  EXPECT_EQ(two.rowwise.scales.shape(), (Shape{1, 1}));
  EXPECT_EQ(two.rowwise.codes.format(), e5m2);
  EXPECT_EQ(bytes_of(two.columnwise.scales), bytes_of(two.rowwise.scales));
  EXPECT_EQ(bytes_of(two.columnwise.codes), transposed_bytes(two.rowwise.codes));
}

TEST(NVFP4Quantizer, HasTwoLevelsOfScales) {
  const Tensor values = ramp({32, 48});
  NVFP4Quantizer quantizer;
  const QuantizedTensor q = quantizer.quantize(values.view());
  EXPECT_EQ(q.rowwise.scales.shape(), (Shape{32, 3}));
  EXPECT_EQ(q.columnwise.scales.shape(), (Shape{48, 2}));
  EXPECT_EQ(q.rowwise.codes.nbytes(), 32 * 24);
  EXPECT_EQ(q.rowwise.scales.format(), e4m3fn);
  float largest = 0;
  for (const float value : values.span<float>()) largest = std::max(largest, std::fabs(value));
  EXPECT_EQ(q.rowwise.tensor_scale.span<float>()[0], 1.0F / (448.0F * 6.0F / largest));
  NVFP4Quantizer weights({.two_dimensional = true});
  EXPECT_EQ(weights.quantize(values.view()).rowwise.scales.shape(), (Shape{2, 3}));
}

TEST(NVFP4Quantizer, AFaultPoisonsItsTileAndNoOther) {
  NVFP4Quantizer quantizer({.columnwise = false});
  const Tensor values = ramp({4, 32});
  const QuantizedTensor clean = quantizer.quantize(values.view());
  for (const float fault : {kNan, kInf, -kInf}) {
    Tensor with = ramp({4, 32});
    with.span<float>()[2 * 32 + 20] = fault;  // neither the largest of the tensor nor of its tile
    const QuantizedTensor q = quantizer.quantize(with.view());
    EXPECT_EQ(q.rowwise.tensor_scale.span<float>()[0], clean.rowwise.tensor_scale.span<float>()[0]);
    const std::vector<std::uint8_t> scales = bytes_of(q.rowwise.scales),
                                    wanted = bytes_of(clean.rowwise.scales);
    for (std::size_t tile = 0; tile < scales.size(); ++tile)
      EXPECT_EQ(scales[tile], tile == 5 ? 0x7F : wanted[tile]) << tile << " of " << fault;
    const Tensor back = dequantize(q);
    for (std::size_t i = 0; i < 4 * 32; ++i)
      EXPECT_EQ(std::isnan(back.span<float>()[i]), i / 16 == 5) << i;
  }
}

TEST(NVFP4Quantizer, TransformsTheColumnwiseCopyOnly) {
  const Tensor values = ramp({32, 48});
  NVFP4Quantizer plain, rotated({.with_rht = true});
  const QuantizedTensor a = plain.quantize(values.view()), b = rotated.quantize(values.view());
  EXPECT_EQ(bytes_of(a.rowwise.codes), bytes_of(b.rowwise.codes));
  EXPECT_NE(bytes_of(a.columnwise.codes), bytes_of(b.columnwise.codes));
  EXPECT_EQ(rotated.scaling().hadamard.signs, 0xD7E8);
  refuses([] { NVFP4Quantizer({.with_rht = true, .two_dimensional = true}); }, "with_rht");
}

TEST(NVFP4Quantizer, ASeedDecidesTheDraws) {
  const Tensor values = ramp({16, 64});
  NVFP4Quantizer quantizer({.columnwise = false, .stochastic_rounding = true, .seed = 1});
  QuantizedTensor q = quantizer.quantize(values.view());
  const auto first = bytes_of(q.rowwise.codes);
  EXPECT_EQ(bytes_of(quantizer.quantize(values.view()).rowwise.codes), first);
  quantizer.set_seed(2);
  quantizer.quantize_into(values.view(), q);
  EXPECT_NE(bytes_of(q.rowwise.codes), first);
  EXPECT_EQ(q.scaling.encode.seed, 2u);
}

TEST(Float8Quantizer, GathersNothingWhereItIsTold) {
  DelayedFixture f;
  f.quantizer.set_gathers(false);
  float apart = 0;
  const Tensor values = values_of({1, 2}, {3, -5});
  (void)f.quantizer.quantize(values.view());
  (void)f.quantizer.quantize(values.view(), {.amax = &apart});
  EXPECT_EQ(f.amax.span<float>()[0], 0.0F);
  EXPECT_EQ(apart, 5.0F);
  f.quantizer.calibrate(values.view());
  EXPECT_EQ(f.amax.span<float>()[0], 5.0F);
}

TEST(Quantizer, ACloneGoesItsOwnWayWithTheSameState) {
  DelayedFixture f;
  const std::unique_ptr<Quantizer> other = f.quantizer.clone();
  other->set_usage(std::nullopt, false);
  EXPECT_TRUE(f.quantizer.scaling().columnwise);
  EXPECT_EQ(other->name(), "Float8Quantizer");
  (void)other->quantize(values_of({1, 2}, {3, -5}).view());
  EXPECT_EQ(f.amax.span<float>()[0], 5.0F);
}

TEST(Quantizer, MakesTheCopiesItIsAskedFor) {
  const Tensor values = ramp({8, 64});
  MXFP8Quantizer quantizer;
  const QuantizedTensor both = quantizer.quantize(values.view());
  quantizer.set_usage(false, std::nullopt);
  QuantizedTensor columns = quantizer.quantize(values.view());
  EXPECT_FALSE(columns.rowwise.exists());
  EXPECT_EQ(bytes_of(columns.columnwise.codes), bytes_of(both.columnwise.codes));
  refuses([&] { quantizer.set_usage(std::nullopt, false); }, "neither");
  EXPECT_TRUE(quantizer.scaling().columnwise);
  EXPECT_EQ(quantizer.dequantize(columns, DType::bf16).shape(), (Shape{8, 64}));

  quantizer.set_usage(true, false);
  refuses([&] { quantizer.quantize_into(values.view(), columns); }, "make_empty");
  QuantizedTensor rows = quantizer.make_empty({8, 64});
  quantizer.quantize_into(values.view(), rows);
  EXPECT_EQ(bytes_of(rows.rowwise.codes), bytes_of(both.rowwise.codes));
  refuses([] { MXFP8Quantizer({.rowwise = false, .columnwise = false}); }, "neither");
  refuses([] { MXFP8Quantizer({.format = e8m0fnu}); }, "unsigned");
}

TEST(Quantizer, KnowsItsName) {
  const Tensor one = values_of({1}, {1});
  EXPECT_EQ(Float8Quantizer({.inv_scale = one.view(), .amax = one.view()}).name(),
            "Float8Quantizer");
  EXPECT_EQ(Float8CurrentScalingQuantizer().name(), "Float8CurrentScalingQuantizer");
  EXPECT_EQ(Float8BlockQuantizer().name(), "Float8BlockQuantizer");
  EXPECT_EQ(MXFP8Quantizer().name(), "MXFP8Quantizer");
  EXPECT_EQ(NVFP4Quantizer().name(), "NVFP4Quantizer");
}

TEST(Quantizer, EmptyTensors) {
  const Tensor none = Tensor::values({0, 64}, DType::f32);
  DelayedFixture f;
  EXPECT_EQ(scale_of(f.quantizer.quantize(none.view()).rowwise), 0.5F);
  EXPECT_EQ(f.amax.span<float>()[0], 0.0F);
  EXPECT_EQ(MXFP8Quantizer().quantize(none.view()).nbytes(), 0);
  EXPECT_EQ(scale_of(Float8CurrentScalingQuantizer().quantize(none.view()).rowwise), 1.0F);
}

}  // namespace
}  // namespace octavo
