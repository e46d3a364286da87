#include "octavo/quant/scale_order.h"

#include <gtest/gtest.h>

#include "octavo/quant/quantize.h"
#include "octavo/quant/scaling_text.h"

namespace octavo {
namespace {

Tensor numbers(const Shape& shape) {
  Tensor tensor = Tensor::values(shape, DType::f32);
  float x = 0;
  for (float& value : tensor.span<float>()) {
    x += 1.0F;
    value = x < 120 ? x : -0.3F * x;
  }
  return tensor;
}

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const auto* start = static_cast<const std::byte*>(tensor.view().data);
  return {start, start + tensor.nbytes()};
}

TEST(ScaleOrder, IsTheOrderThatAGemmReads) {
  Scaling scaling = preset("fp8-1x128");
  const Tensor values = numbers({5, 300});
  const QuantizedTensor row = quantize(values.view(), scaling);
  scaling.scale_order = ScaleOrder::col_major;
  const QuantizedTensor col = quantize(values.view(), scaling);
  EXPECT_EQ(bytes_of(col.rowwise.codes), bytes_of(row.rowwise.codes));
  EXPECT_EQ(col.rowwise.scales.shape(), (Shape{5, 3}));
  EXPECT_EQ(col.rowwise.scales.view().strides, (Shape{4, 20}));
  const auto* stored = static_cast<const float*>(col.rowwise.scales.view().data);
  for (std::int64_t r = 0; r < 5; ++r)
    for (std::int64_t c = 0; c < 3; ++c)
      EXPECT_EQ(stored[c * 5 + r],
                row.rowwise.scales.span<float>()[static_cast<std::size_t>(r * 3 + c)]);
  EXPECT_EQ(bytes_of(dequantize(col)), bytes_of(dequantize(row)));
  EXPECT_NE(describe(scaling), describe(row.scaling));
  EXPECT_EQ(parse_scaling(to_text(scaling)), scaling);
}

// Leading dimensions are collapsed into rows of one matrix: [batch, sequence, K] is [K / 128][batch
// * sequence].
TEST(ScaleOrder, CollapsesLeadingDimensions) {
  for (const char* name : {"fp8-1x128", "mxfp8", "nvfp4", "fp8-block", "fp8-channel"}) {
    Scaling scaling = preset(name);
    for (const Shape& shape : {Shape{3, 4, 300}, Shape{2, 3, 2, 64}, Shape{70}, Shape{1, 300}}) {
      const Tensor values = numbers(shape);
      scaling.scale_order = ScaleOrder::row_major;
      const QuantizedTensor row = quantize(values.view(), scaling);
      scaling.scale_order = ScaleOrder::col_major;
      const QuantizedTensor col = quantize(values.view(), scaling);
      EXPECT_EQ(bytes_of(in_order(col.rowwise.scales, ScaleOrder::row_major)),
                bytes_of(row.rowwise.scales))
          << name << to_string(shape);
      EXPECT_EQ(bytes_of(in_order(row.rowwise.scales, ScaleOrder::col_major)),
                bytes_of(col.rowwise.scales));
      EXPECT_EQ(bytes_of(col.rowwise.codes), bytes_of(row.rowwise.codes));
      EXPECT_EQ(bytes_of(dequantize(col)), bytes_of(dequantize(row)));
      if (scaling.tile.rows > 1) continue;  // not of a stack
      EXPECT_EQ(bytes_of(requantize(col, preset("mxfp4")).rowwise.codes),
                bytes_of(requantize(row, preset("mxfp4")).rowwise.codes));
    }
  }
}

TEST(ScaleOrder, ScalesOfOthersMayLieEitherWay) {
  const Scaling scaling = preset("fp8-1x128");
  const QuantizedTensor row = quantize(numbers({6, 256}).view(), scaling);
  const Tensor transposed = in_order(row.rowwise.scales, ScaleOrder::col_major);
  const QuantizedTensor q = quantized_from({6, 256}, scaling, row.rowwise.codes, transposed);
  EXPECT_EQ(q.scaling.scale_order, ScaleOrder::col_major);
  EXPECT_EQ(bytes_of(dequantize(q)), bytes_of(dequantize(row)));
  auto* stored = static_cast<float*>(transposed.view().data);
  stored[6 + 4] = -1.0F;  // row 4, column 1
  try {
    (void)quantized_from({6, 256}, scaling, row.rowwise.codes, transposed);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("tile (4, 1)"), std::string_view::npos)
        << error.what();
  }
  const Tensor wide = Tensor::values({6, 4}, DType::f32);
  View gaps = wide.view();
  gaps.shape[1] = 2;
  EXPECT_THROW(
      (void)quantized_from({6, 256}, scaling, row.rowwise.codes, Tensor::adopt(gaps, wide.owner())),
      Error);
  Scaling along_rows = scaling;
  along_rows.axis = 0;
  along_rows.scale_order = ScaleOrder::col_major;
  EXPECT_THROW((void)quantize(numbers({6, 256}).view(), along_rows), Error);
}

}  // namespace
}  // namespace octavo
