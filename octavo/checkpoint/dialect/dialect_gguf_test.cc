// Packed blocks of a GGUF file give the values of the row block back.
#include <gtest/gtest.h>

#include <vector>

#include "octavo/checkpoint/dialect/dialect_testing_internal.h"
#include "octavo/checkpoint/gguf/block_decode.h"

namespace octavo {
namespace {

constexpr const char* kName = "model.layers.0.mlp.up_proj.weight";

QuantizedWeight weight_of(const Scaling& scaling, std::int64_t rows = 8, std::int64_t cols = 64) {
  return {.name = kName,
          .module = "model.layers.0.mlp.up_proj",
          .shape = {rows, cols},
          .source = DType::f32,
          .scaling = scaling};
}

Scaling integers(ScaleFormat format, ScaleRule rule) {
  Scaling scaling = preset("mxint8");
  scaling.scale.format = format;
  scaling.scale.rule = rule;
  return scaling;
}

void expect_same_values(const Scaling& scaling, std::string_view type) {
  const std::vector<float> values = awkward_values(8, 64);
  const QuantizedTensor codes = quantize(
      value_view(const_cast<float*>(values.data()), DType::f32, {8, 64}), scaling);  // NOLINT
  const QuantizedWeight weight = weight_of(scaling);
  const auto tensors = dialect_tensors(Dialect::gguf, weight);
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].plan.name, "blk.0.ffn_up.weight");
  EXPECT_EQ(tensors[0].block_type, type);
  const auto pieces = pack_row_block(Dialect::gguf, weight, 0, codes);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].bytes.size(), tensors[0].plan.shape[0] * tensors[0].plan.shape[1]);
  std::vector<float> found(values.size());
  gguf::decode_blocks(gguf::type_named(type), pieces[0].bytes, found);
  const Tensor wanted = dequantize(codes, DType::f32);
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], wanted.span<float>()[i]) << type << " " << i;
}

TEST(DialectGguf, BlocksHaveTheValuesOfTheirCodes) {
  expect_same_values(preset("mxfp4"), "MXFP4");
  // Values of these rows are 2^-9 and more: their scales, divided by 64, are powers of two or
  // quotients in f16's range; those of the smallest rows are subnormal, and powers of two are exact
  // there.
  expect_same_values(integers(ScaleFormat::e8m0, ScaleRule::rceil), "Q8_0");
}

// Where the scale is no power of two, f16 rounds it once more when it is subnormal: by half of
// 2^-24, for codes up to 127.
TEST(DialectGguf, SubnormalScalesAreRoundedOnceMore) {
  const Scaling scaling = integers(ScaleFormat::f16, ScaleRule::f32);
  const std::vector<float> values = awkward_values(8, 64);
  const QuantizedTensor codes = quantize(
      value_view(const_cast<float*>(values.data()), DType::f32, {8, 64}), scaling);  // NOLINT
  const auto pieces = pack_row_block(Dialect::gguf, weight_of(scaling), 0, codes);
  std::vector<float> found(values.size());
  gguf::decode_blocks(gguf::type_named("Q8_0"), pieces[0].bytes, found);
  const Tensor wanted = dequantize(codes, DType::f32);
  const float bound = 127 * 0x1p-25F;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_LE(std::fabs(found[i] - wanted.span<float>()[i]), bound) << i;
}

TEST(DialectGguf, SaysWhatItCannotHold) {
  const auto reason = [](const QuantizedWeight& weight) { return why_not(Dialect::gguf, weight); };
  EXPECT_EQ(reason(weight_of(preset("mxfp4"))), "");
  EXPECT_NE(reason(weight_of(preset("mxfp8"))).find("mxfp4 (MXFP4) and mxint8 (Q8_0)"),
            std::string::npos);
  EXPECT_NE(reason(weight_of(preset("mxfp4"), 8, 48)).find("multiples of 32"), std::string::npos);
  QuantizedWeight other = weight_of(preset("mxfp4"));
  other.name = "model.layers.0.mamba.out_proj.weight";
  EXPECT_NE(reason(other).find("no name"), std::string::npos);
}

}  // namespace
}  // namespace octavo
