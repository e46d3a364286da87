#include "octavo/quant/fp8_quantize.h"

#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo {
namespace {

Tensor counted(const Shape& shape) {
  Tensor tensor = Tensor::values(shape, DType::f32);
  float next = -3;
  for (float& value : tensor.span<float>()) value = next += 1.25F;
  return tensor;
}

template <typename T>
T element(const View& view, std::int64_t row, std::int64_t col) {
  return *reinterpret_cast<const T*>(static_cast<const std::byte*>(view.data) +
                                     row * view.strides[0] + col * view.strides[1]);
}

TEST(Fp8Quantize, GivesCodesAndTheirScale) {
  const std::vector<float> values = {1, 2, 3};
  const Fp8Quantized q = fp8_quantize(view_of(std::span(values)));
  EXPECT_EQ(q.codes.format(), e4m3fn);
  EXPECT_EQ(element_count(q.scale.shape()), 1);
  const float scale = q.scale.span<float>()[0];
  EXPECT_EQ(scale, 3.0F / 448.0F);
  // 448, then 298.67 to 288, then 149.33 to 144 or 160: steps are 32 from 256 on and 16 below.
  EXPECT_EQ(decode(e4m3fn, q.codes.span<std::uint8_t>()[2]), 448);
  EXPECT_EQ(decode(e4m3fn, q.codes.span<std::uint8_t>()[1]), 288);
  EXPECT_EQ(decode(e4m3fn, q.codes.span<std::uint8_t>()[0]), 144);
}

TEST(Fp8Quantize, ATransposeStaysColumnMajor) {
  const Tensor dense = counted({5, 3});
  View transposed = dense.view();
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  const Fp8Quantized q = fp8_quantize(transposed), plain = fp8_quantize(dense.view());
  EXPECT_EQ(q.codes.shape(), (Shape{3, 5}));
  EXPECT_EQ(q.codes.view().strides, (Shape{1, 3}));
  EXPECT_EQ(plain.codes.view().strides, (Shape{3, 1}));
  for (std::int64_t row = 0; row < 3; ++row)
    for (std::int64_t col = 0; col < 5; ++col)
      EXPECT_EQ(element<std::uint8_t>(q.codes.view(), row, col),
                element<std::uint8_t>(plain.codes.view(), col, row));
  EXPECT_EQ(q.scale.span<float>()[0], plain.scale.span<float>()[0]);
}

TEST(Fp8Quantize, APartOfAMatrixBecomesDense) {
  const Tensor dense = counted({6, 8});
  View part = dense.view();  // columns 1, 3 and 5 of the rows backwards, transposed
  part.data = &dense.span<float>()[5 * 8 + 1];
  part.shape = {3, 6};
  part.strides = {8, -32};
  const Fp8Quantized q = fp8_quantize(part);
  EXPECT_EQ(q.codes.view().strides, (Shape{1, 3}));
  const float scale = q.scale.span<float>()[0];
  for (std::int64_t row = 0; row < 3; ++row)
    for (std::int64_t col = 0; col < 6; ++col)
      // Half a step of a code: 1/16 of the value, or 2^-10 of the range near zero.
      EXPECT_NEAR(static_cast<double>(scale) *
                      decode(e4m3fn, element<std::uint8_t>(q.codes.view(), row, col)),
                  element<float>(part, row, col), std::fabs(element<float>(part, row, col)) / 16);
}

TEST(Fp8Quantize, StridesInAnyOrder) {
  const Tensor dense = counted({2, 3, 4});
  View transpose = dense.view();
  transpose.shape = {3, 4, 2};
  transpose.strides = {16, 4, 48};
  EXPECT_EQ(fp8_quantize(transpose).codes.view().strides, (Shape{4, 1, 12}));
  // A dimension of one has any stride and stays where it is.
  View single = dense.view();
  single.shape = {6, 1, 4};
  single.strides = {16, 999, 4};
  EXPECT_EQ(fp8_quantize(single).codes.view().strides, (Shape{4, 4, 1}));
  View repeated = dense.view();
  repeated.shape = {4, 3};
  repeated.strides = {0, 4};
  EXPECT_EQ(fp8_quantize(repeated).codes.view().strides, (Shape{3, 1}));
}

TEST(Fp8Quantize, ScalarsAndNothing) {
  const Tensor scalar = counted({});
  const Fp8Quantized one = fp8_quantize(scalar.view());
  EXPECT_EQ(decode(e4m3fn, one.codes.span<std::uint8_t>()[0]), -448);
  const Tensor none = counted({0, 3});
  EXPECT_EQ(fp8_quantize(none.view()).codes.shape(), (Shape{0, 3}));
  EXPECT_EQ(fp8_quantize(none.view()).scale.span<float>()[0], 1.0F);
}

TEST(Fp8Quantize, RefusesWhatIsNotValues) {
  View bad = counted({2, 2}).view();
  bad.strides = {4};
  EXPECT_THROW((void)fp8_quantize(bad), Error);
  EXPECT_THROW((void)fp8_quantize(Tensor::codes({2}, e5m2).view()), Error);
}

}  // namespace
}  // namespace octavo
