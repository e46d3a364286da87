// quantize and dequantize through the public interface: worked examples, sizes, and every caller
// error.
#include "octavo/quant/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/error_testing_internal.h"
#include "octavo/format/decode.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/encode.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

Tensor tensor_of(const std::vector<float>& values, const Shape& shape) {
  Tensor tensor = Tensor::values(shape, DType::f32);
  std::copy(values.begin(), values.end(), tensor.span<float>().begin());
  return tensor;
}

std::vector<int> bytes_of(const Tensor& tensor) {
  std::vector<int> out;
  for (const std::byte byte : tensor.bytes()) out.push_back(std::to_integer<int>(byte));
  return out;
}

// Eight float16 activations that share one scale: amax 2, scale 2 / 448, u = 224 x.
TEST(Quantize, ABlockOfEightByHand) {
  const std::vector<double> x{0.50, -1.20, 0.10, 0.00, 2.00, -0.30, 0.70, -0.80};
  Tensor halves = Tensor::values({1, 8}, DType::f16);
  for (std::size_t i = 0; i < x.size(); ++i)
    halves.span<std::uint16_t>()[i] =
        static_cast<std::uint16_t>(encode_value(f16_format, x[i]).code);
  const Scaling scaling{.format = e4m3fn, .tile = {1, 8}};
  const QuantizedTensor q = quantize(halves.view(), scaling);
  ASSERT_EQ(q.rowwise.scales.shape(), (Shape{1, 1}));
  const float scale = q.rowwise.scales.span<float>()[0];
  EXPECT_EQ(scale, 2.0F / 448.0F);
  // u rounds to 112, -256, 22, 0, 448, -64, 160, -176.
  EXPECT_EQ(bytes_of(q.rowwise.codes),
            (std::vector<int>{0x6E, 0xF8, 0x5B, 0x00, 0x7E, 0xE8, 0x72, 0xF3}));
  const std::vector<float> u{112, -256, 22, 0, 448, -64, 160, -176};
  const Tensor back = dequantize(q);
  for (std::size_t i = 0; i < u.size(); ++i) {
    EXPECT_EQ(back.span<float>()[i], scale * u[i]) << i;
    // Three mantissa bits: half a step is at most 1/16 of the value.
    EXPECT_LE(std::fabs(static_cast<double>(back.span<float>()[i]) - x[i]), std::fabs(x[i]) / 16);
  }

  Scaling short_scale = scaling;
  short_scale.scale.format = ScaleFormat::f16;
  const QuantizedTensor two_bytes = quantize(halves.view(), short_scale);
  EXPECT_EQ(two_bytes.nbytes(), 8 + 2);
  EXPECT_EQ(two_bytes.rowwise.scales.span<std::uint16_t>()[0],
            encode_value(f16_format, 2.0 / 448.0).code);
}

TEST(Quantize, SizesOfMxfp8) {
  const Tensor large = Tensor::values({1024, 1024}, DType::bf16);
  std::memset(large.bytes().data(), 0, large.bytes().size());
  const QuantizedTensor q = quantize(large.view(), preset("mxfp8"));
  EXPECT_EQ(q.rowwise.codes.nbytes(), 1 << 20);
  EXPECT_EQ(q.rowwise.scales.nbytes(), 32 << 10);
  EXPECT_FALSE(q.columnwise.exists());

  Scaling both = preset("mxfp8");
  both.columnwise = true;
  const Tensor small = tensor_of(std::vector<float>(32 * 32, 1.0F), {32, 32});
  EXPECT_EQ(quantize(small.view(), both).nbytes(), 2112);
}

TEST(Quantize, ATileLargerThanTheTensorIsTheTensor) {
  const Tensor x = tensor_of({1, 2, 3, 4, 5, 6}, {2, 3});
  Scaling huge{.tile = {kMax, kMax}};
  const QuantizedTensor q = quantize(x.view(), huge);
  EXPECT_EQ(q.rowwise.scales.shape(), (Shape{1, 1}));
  const QuantizedTensor whole = quantize(x.view(), preset("fp8"));
  EXPECT_EQ(bytes_of(q.rowwise.codes), bytes_of(whole.rowwise.codes));
  EXPECT_EQ(bytes_of(q.rowwise.scales), bytes_of(whole.rowwise.scales));
}

TEST(Quantize, DimensionsOfZero) {
  for (const std::string& name : preset_names()) {
    for (const Shape& shape : {Shape{0}, Shape{0, 5}, Shape{5, 0}, Shape{2, 0, 3}}) {
      Scaling scaling = preset(name);
      scaling.columnwise = shape.rank() == 2;
      const Tensor nothing = Tensor::values(shape, DType::f32);
      const QuantizedTensor q = quantize(nothing.view(), scaling);
      EXPECT_EQ(q.rowwise.codes.nbytes(), 0) << name;
      const Tensor back = dequantize(q);
      EXPECT_EQ(back.shape(), shape) << name;
    }
  }
}

// No elements, but so many rows that their number of tiles, worked out carelessly, is negative.
TEST(Quantize, NothingInAnEnormousShape) {
  for (const Shape& shape : {Shape{kMax, 0}, Shape{0, kMax / 64}}) {
    for (const std::string& name : preset_names()) {
      View nothing = value_view(nullptr, DType::f32, {0});
      nothing.shape = shape;
      nothing.strides = dense_strides(shape, DType::f32, {}, false);
      const QuantizedTensor q = quantize(nothing, preset(name));
      EXPECT_EQ(q.rowwise.codes.nbytes(), 0) << name << " " << to_string(shape);
      for (int i = 0; i < q.rowwise.scales.shape().rank(); ++i)
        EXPECT_GE(q.rowwise.scales.shape()[i], 0) << name << " " << to_string(shape);
      Scaling columnwise = preset(name);
      columnwise.columnwise = true;
      if (shape[0] != 0) {  // the transpose has one row too long
        expect_refused(ErrorCode::invalid_argument, "64 bits",
                       [&] { (void)quantize(nothing, columnwise); });
      } else {
        EXPECT_EQ(quantize(nothing, columnwise).columnwise.codes.nbytes(), 0);
      }
    }
  }
}

TEST(Quantize, RefusesShapesThatCannotBe) {
  View view = value_view(nullptr, DType::f32, {0});
  view.shape = {kMax, 4};
  view.strides = {16, 4};
  expect_refused(ErrorCode::invalid_argument, "", [&] { (void)quantize(view, preset("mxfp8")); });
  expect_refused(ErrorCode::invalid_argument, "", [&] {
    (void)make_quantized({kMax, 4}, DType::f32, preset("mxfp8"));
  });
  view.shape = {2, -3};
  expect_refused(ErrorCode::invalid_argument, "-3", [&] { (void)quantize(view, preset("mxfp8")); });
}

TEST(Quantize, RefusesNullData) {
  View view = value_view(nullptr, DType::f32, {0});
  view.shape = {2, 3};
  view.strides = {12, 4};
  expect_refused(ErrorCode::invalid_argument, "null data",
                 [&] { (void)quantize(view, preset("fp8")); });
  const QuantizedTensor q = quantize(tensor_of({1, 2}, {1, 2}).view(), preset("fp8"));
  view.shape = {1, 2};
  expect_refused(ErrorCode::invalid_argument, "null data", [&] { dequantize_into(q, view); });
}

TEST(Quantize, RefusesOptionsThatCannotBe) {
  const Tensor x = tensor_of({1, 2, 3, 4}, {2, 2});
  const auto refused = [&](const std::string& words, auto&& edit) {
    Scaling scaling = preset("fp8-1x128");
    edit(scaling);
    expect_refused(ErrorCode::invalid_argument, words, [&] { (void)quantize(x.view(), scaling); });
  };
  for (const double p : {0.0, -1.0, 100.5, std::nan(""), HUGE_VAL}) {
    refused("percentile", [&](Scaling& s) {
      s.policy = AmaxPolicy::percentile;
      s.percentile = p;
    });
  }
  for (const int axis : {2, -3, 1000, std::numeric_limits<int>::min()})
    refused("axis", [&](Scaling& s) { s.axis = axis; });
  refused("tile", [](Scaling& s) { s.tile = {-1, 4}; });
  refused("unsigned", [](Scaling& s) { s.format = e8m0fnu; });
  refused("margin", [](Scaling& s) { s.scale.margin = 65; });
  refused("min_amax", [](Scaling& s) { s.scale.min_amax = -1.0F; });
  refused("neither", [](Scaling& s) { s.rowwise = false; });
  expect_refused(ErrorCode::invalid_argument, "threads",
                 [&] { (void)quantize(x.view(), preset("fp8"), {.threads = -1}); });
  const QuantizedTensor q = quantize(x.view(), preset("fp8"));
  expect_refused(ErrorCode::invalid_argument, "threads",
                 [&] { (void)dequantize(q, DType::f32, {.threads = -1}); });
}

TEST(Quantize, APeerDoesOnlyWhatItDoes) {
  const auto refused = [&](const std::string& words, const char* name, auto&& edit) {
    Scaling scaling = preset(name);
    edit(scaling.scale);
    expect_refused(ErrorCode::invalid_argument, words, [&] { check_scaling(scaling); });
  };
  refused("rule floor", "mxfp8", [](ScaleSpec& s) {
    s.arith = Arith::te;
    s.rule = ScaleRule::floor;
  });
  refused("rule even", "mxfp4", [](ScaleSpec& s) {
    s.arith = Arith::modelopt;
    s.rule = ScaleRule::even;
  });
  refused("rule rceil", "fp8", [](ScaleSpec& s) {
    s.arith = Arith::modelopt;
    s.rule = ScaleRule::rceil;
  });
  refused("rule ceil", "fp8", [](ScaleSpec& s) {
    s.arith = Arith::torchao;
    s.rule = ScaleRule::ceil;
  });
  refused("scales of bf16", "fp8", [](ScaleSpec& s) {
    s.arith = Arith::torchao;
    s.format = ScaleFormat::bf16;
  });
  refused("margin", "nvfp4", [](ScaleSpec& s) {
    s.arith = Arith::torchao;
    s.margin = 1;
  });
}

TEST(Quantize, RefusesUnknownPresets) {
  expect_refused(ErrorCode::invalid_argument, "nvfp4", [] { (void)preset("mxfp9"); });
  expect_refused(ErrorCode::invalid_argument, "expected one of", [] { (void)preset(""); });
  expect_refused(ErrorCode::invalid_argument, "e5m2", [] { (void)preset("mxfp8:e3m4"); });
  expect_refused(ErrorCode::invalid_argument, "percentile", [] {
    Scaling scaling;
    parse_amax_policy("percentile:101", scaling);
  });
  expect_refused(ErrorCode::invalid_argument, "torchao_inference",
                 [] { (void)parse_arith("torch"); });
}

// Codes of one, in two tiles, with scales as given.
QuantizedTensor with_scales(float first, float second) {
  Tensor codes = Tensor::codes({2, 4}, e4m3fn);
  std::memset(codes.bytes().data(), 0x38, codes.bytes().size());
  return quantized_from({2, 4}, preset("fp8-channel"), codes, tensor_of({first, second}, {2, 1}));
}

TEST(QuantizedFrom, RefusesNegativeScalesByTile) {
  expect_refused(ErrorCode::invalid_argument, "tile (1, 0)", [] { (void)with_scales(1, -2); });
  expect_refused(ErrorCode::invalid_argument, "tile (0, 0)",
                 [] { (void)with_scales(-HUGE_VALF, 2); });
  EXPECT_NO_THROW((void)with_scales(-0.0F, 1));
  Tensor codes = Tensor::codes({1, 32}, e2m1fn), scales = Tensor::codes({1, 2}, e4m3fn);
  std::memset(codes.bytes().data(), 0, codes.bytes().size());
  scales.span<std::uint8_t>()[0] = 0x38;
  scales.span<std::uint8_t>()[1] = 0xB8;
  const Tensor one = tensor_of({1}, {});
  expect_refused(ErrorCode::invalid_argument, "tile (0, 1)", [&] {
    Scaling scaling = preset("nvfp4");
    (void)quantized_from({1, 32}, scaling, codes, scales, one);
  });
}

TEST(QuantizedFrom, RefusesPartsWithoutMemory) {
  const Scaling scaling = preset("nvfp4");
  const auto without = [](const Tensor& tensor) {
    View view = tensor.view();
    view.data = nullptr;
    return Tensor::adopt(view, tensor.owner());
  };
  const Tensor codes = Tensor::codes({1, 32}, e2m1fn), scales = Tensor::codes({1, 2}, e4m3fn),
               one = tensor_of({1}, {});
  const auto made = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    return [&scaling, a, b, c] { (void)quantized_from({1, 32}, scaling, a, b, c, nullptr, false); };
  };
  expect_refused(ErrorCode::invalid_argument, "codes has 32 elements but no memory",
                 made(without(codes), scales, one));
  expect_refused(ErrorCode::invalid_argument, "scales has 2 elements but no memory",
                 made(codes, without(scales), one));
  expect_refused(ErrorCode::invalid_argument, "tensor scale has 1 elements but no memory",
                 made(codes, scales, without(one)));
}

TEST(QuantizedFrom, RefusesInfiniteScalesByTile) {
  expect_refused(ErrorCode::invalid_argument, "tile (1, 0) is inf",
                 [] { (void)with_scales(1, HUGE_VALF); });
}

TEST(QuantizedFrom, TakesScalesAsTheyAreWithoutValidation) {
  Tensor codes = Tensor::codes({2, 4}, e4m3fn);
  std::memset(codes.bytes().data(), 0x38, codes.bytes().size());
  const Tensor scales = tensor_of({-2, HUGE_VALF}, {2, 1});
  const auto made = [&](const Scaling& scaling) {
    return quantized_from({2, 4}, scaling, codes, scales, {}, nullptr, false);
  };
  const Tensor back = dequantize(made(preset("fp8-channel")));
  EXPECT_EQ(back.span<float>()[0], -2.0F);
  EXPECT_EQ(back.span<float>()[4], HUGE_VALF);
  expect_refused(ErrorCode::invalid_argument, "scales have shape",
                 [&] { (void)made(preset("fp8")); });
}

TEST(QuantizedFrom, NaNAndZeroScalesDecodeAsTheyAre) {
  const Tensor back = dequantize(with_scales(std::nanf(""), 0.0F));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isnan(back.span<float>()[i]));
    EXPECT_EQ(back.span<float>()[4 + i], 0.0F);
  }
}

TEST(QuantizedFrom, RefusesWhatDoesNotFit) {
  const Tensor codes = Tensor::codes({2, 4}, e4m3fn);
  const Scaling scaling = preset("fp8-channel");
  expect_refused(ErrorCode::invalid_argument, "scales have shape", [&] {
    (void)quantized_from({2, 4}, scaling, codes, tensor_of({1, 1, 1}, {3, 1}));
  });
  expect_refused(ErrorCode::invalid_argument, "expected that of the tensor", [&] {
    (void)quantized_from({4, 2}, scaling, codes, tensor_of({1, 1}, {2, 1}));
  });
  expect_refused(ErrorCode::invalid_argument, "e5m2", [&] {
    (void)quantized_from({2, 4}, preset("fp8-channel:e5m2"), codes, tensor_of({1, 1}, {2, 1}));
  });
}

}  // namespace
}  // namespace octavo
