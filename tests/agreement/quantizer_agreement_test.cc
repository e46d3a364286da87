// The quantizers of training frameworks (quant/quantizer.h) on every backend: they have their own
// arithmetic and NaN handling, and fast kernels for them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "octavo/quant/quantizer.h"
#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"
#include "tests/support/sanitizer.h"

namespace octavo::testing {
namespace {

std::vector<NamedScaling> quantizers() {
  std::vector<NamedScaling> list;
  const auto add = [&](const char* name, const Format& format, const Quantizer& quantizer) {
    list.push_back({text(name, format == e5m2 ? "_e5m2" : "_e4m3"), quantizer.scaling()});
  };
  for (const Format& format : {e4m3fn, e5m2}) {
    add("mx", format, MXFP8Quantizer({.format = format}));
    add("mx_square", format, MXFP8Quantizer({.format = format, .two_dimensional = true}));
    for (const bool power : {false, true}) {
      add(power ? "tensor_power" : "tensor", format,
          Float8CurrentScalingQuantizer({.format = format, .power_of_two = power}));
      add(power ? "rows_power" : "rows", format,
          Float8BlockQuantizer({.format = format, .power_of_two = power, .block_dims = 1}));
      add(power ? "squares_power" : "squares", format,
          Float8BlockQuantizer({.format = format, .power_of_two = power}));
    }
  }
  return list;
}

class QuantizerAgreement : public ::testing::TestWithParam<NamedScaling> {
 protected:
  static void expect_agreement(const Tensor& values, const QuantizeOptions& given,
                               const std::string& where) {
    float amax = 0;
    QuantizeOptions options = given;
    options.amax = &amax;
    options.backend = &reference_backend();
    const QuantizedTensor wanted = quantize(values.view(), GetParam().scaling, options);
    for (const BackendInfo& backend : support::every_backend())
      for (const bool rowwise : {true, false})
        for (const bool columnwise : {true, false}) {
          if (!rowwise && !columnwise) continue;
          const std::string here = text(where, ", ", backend.name, rowwise ? ", rows" : "",
                                        columnwise ? ", columns" : "");
          Scaling scaling = GetParam().scaling;
          scaling.rowwise = rowwise;
          scaling.columnwise = columnwise;
          float found = 0;
          options.amax = &found;
          options.backend = backend.kernels;
          const QuantizedTensor got = quantize(values.view(), scaling, options);
          EXPECT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(amax))
              << here;
          if (rowwise) {
            EXPECT_TRUE(same_bytes(got.rowwise.scales, wanted.rowwise.scales)) << here;
            EXPECT_TRUE(same_bytes(got.rowwise.codes, wanted.rowwise.codes)) << here;
          }
          if (columnwise) {
            EXPECT_TRUE(same_bytes(got.columnwise.scales, wanted.columnwise.scales)) << here;
            EXPECT_TRUE(same_bytes(got.columnwise.codes, wanted.columnwise.codes)) << here;
          }
        }
  }

  // Whole tiles, ragged ones, and rows that are no multiple of a vector.
  static constexpr Shape kShapes[] = {{256, 384}, {96, 328}, {33, 70}};
  static std::vector<float> finite(const Shape& shape) {
    return all_kinds_of_values(shape[0] * shape[1], 5, true);
  }
};

TEST_P(QuantizerAgreement, FiniteValuesOfEveryKind) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      expect_agreement(values_as(finite(shape), shape, dtype), {},
                       text(to_string(shape), " of ", dtype_name(dtype)));
}

// In a tile of its own, in one with numbers, and in all.
TEST_P(QuantizerAgreement, ValuesThatAreNotFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Shape& shape : kShapes)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const float other :
           support::some_of(std::vector<float>{HUGE_VALF, -HUGE_VALF, kNan, -kNan})) {
        std::vector<float> values = finite(shape);
        values[static_cast<std::size_t>(shape[1]) + 3] = other;
        values.back() = kNan;
        expect_agreement(values_as(values, shape, dtype), {},
                         text(to_string(shape), " of ", dtype_name(dtype), " with ", other));
      }
  const std::vector<float> all(256 * 384, kNan);
  expect_agreement(values_as(all, {256, 384}, DType::bf16), {}, "all NaN");
  const std::vector<float> none(256 * 384, 0.0F);
  expect_agreement(values_as(none, {256, 384}, DType::bf16), {}, "all zero");
}

// Delayed scaling: inv_scale is given, and the amax found on the way.
TEST_P(QuantizerAgreement, GivenInvScale) {
  if (GetParam().scaling.tile != Tile{0, 0} || GetParam().scaling.scale.rule != ScaleRule::f32)
    return;
  const float inv_scale = 3.7F;
  for (const bool with_nan : {false, true}) {
    std::vector<float> values = finite({256, 384});
    if (with_nan) values[777] = std::numeric_limits<float>::quiet_NaN();
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      expect_agreement(values_as(values, {256, 384}, dtype), {.given_inv_scale = &inv_scale},
                       text(dtype_name(dtype), with_nan ? " with NaN" : ""));
  }
}

INSTANTIATE_TEST_SUITE_P(Te, QuantizerAgreement, ::testing::ValuesIn(quantizers()),
                         [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace octavo::testing
