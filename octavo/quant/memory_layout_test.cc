// An independent reader written from docs/numerics/layout.md alone: raw bytes in, values out.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/quant/layout.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

struct Extent {
  std::int64_t matrices, rows, cols;
};

std::int64_t up_divided(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class PageReader {
 public:
  PageReader(const QuantizedCopy& copy, const Scaling& scaling, const Extent& extent)
      : scaling_(scaling),
        extent_(extent),
        tile_rows_(scaling.tile.rows == 0 ? extent.rows : scaling.tile.rows),
        tile_cols_(scaling.tile.cols == 0 ? extent.cols : scaling.tile.cols),
        grid_rows_(up_divided(extent.rows, tile_rows_)),
        grid_cols_(up_divided(extent.cols, tile_cols_)),
        codes_(start(copy.codes)),
        scales_(start(copy.scales)) {
    if (scaling.scale.format == ScaleFormat::e4m3_f32)
      std::memcpy(&tensor_scale_, start(copy.tensor_scale), 4);
    EXPECT_EQ(copy.nbytes(), extent.matrices * extent.rows * row_bytes() + scale_bytes());
  }

  [[nodiscard]] float value(std::int64_t matrix, std::int64_t row, std::int64_t col) const {
    return static_cast<float>(decode(scaling_.format, code(matrix, row, col)) *
                              scale(matrix, row, col));
  }

 private:
  static const std::uint8_t* start(const Tensor& tensor) {
    return static_cast<const std::uint8_t*>(tensor.view().data);
  }
  [[nodiscard]] bool per_tensor() const { return scaling_.tile == Tile{0, 0}; }
  [[nodiscard]] int scale_size() const {
    return scaling_.scale.format == ScaleFormat::f32 ? 4
           : scaling_.scale.format == ScaleFormat::bf16 || scaling_.scale.format == ScaleFormat::f16
               ? 2
               : 1;
  }
  [[nodiscard]] std::int64_t scale_bytes() const {
    const std::int64_t grid = per_tensor() ? 1 : extent_.matrices * grid_rows_ * grid_cols_;
    return grid * scale_size() + (scaling_.scale.format == ScaleFormat::e4m3_f32 ? 4 : 0);
  }
  [[nodiscard]] bool packed() const { return scaling_.packed && scaling_.format.bits() < 8; }
  [[nodiscard]] std::int64_t row_bytes() const {
    return packed() ? up_divided(extent_.cols * scaling_.format.bits(), 8) : extent_.cols;
  }
  [[nodiscard]] std::uint32_t code(std::int64_t matrix, std::int64_t row, std::int64_t col) const {
    const std::uint8_t* begin = codes_ + (matrix * extent_.rows + row) * row_bytes();
    if (!packed()) return begin[col];
    std::uint32_t bits = 0;
    for (int i = 0; i < scaling_.format.bits(); ++i) {
      const std::int64_t at = col * scaling_.format.bits() + i;
      bits |= static_cast<std::uint32_t>(begin[at / 8] >> (at % 8) & 1) << i;
    }
    return bits;
  }
  [[nodiscard]] double scale(std::int64_t matrix, std::int64_t row, std::int64_t col) const {
    const std::int64_t at =
        per_tensor() ? 0 : (matrix * grid_rows_ + row / tile_rows_) * grid_cols_ + col / tile_cols_;
    const std::uint8_t* from = scales_ + at * scale_size();
    switch (scaling_.scale.format) {
      case ScaleFormat::f32: {
        float scale;
        std::memcpy(&scale, from, 4);
        return scale;
      }
      case ScaleFormat::bf16:
        return decode(bf16_format, static_cast<std::uint32_t>(from[0] | from[1] << 8));
      case ScaleFormat::f16:
        return decode(f16_format, static_cast<std::uint32_t>(from[0] | from[1] << 8));
      case ScaleFormat::e8m0:
        return std::ldexp(1.0, from[0] - 127);
      case ScaleFormat::e4m3_f32:
        break;
    }
    return decode(e4m3fn, from[0]) * static_cast<double>(tensor_scale_);
  }

  Scaling scaling_;
  Extent extent_;
  std::int64_t tile_rows_, tile_cols_, grid_rows_, grid_cols_;
  const std::uint8_t *codes_, *scales_;
  float tensor_scale_ = 1;
};

Tensor waves(const Shape& shape) {
  Tensor tensor = Tensor::values(shape, DType::f32);
  float at = 0;
  for (float& value : tensor.span<float>()) {
    value = std::sin(at) * std::exp(std::sin(0.37F * at) * 5);
    at += 0.7F;
  }
  return tensor;
}

std::vector<Scaling> scalings() {
  std::vector<Scaling> all;
  for (const std::string& name : preset_names()) all.push_back(preset(name));
  for (const Tile tile : {Tile{0, 1}, Tile{32, 32}, Tile{3, 5}}) {
    all.push_back(preset("mxfp6:e3m2fn"));
    all.back().tile = tile;
  }
  for (const ScaleFormat format : {ScaleFormat::bf16, ScaleFormat::f16}) {
    all.push_back(preset("fp8-1x128"));
    all.back().scale.format = format;
  }
  all.push_back(preset("mxfp4"));
  all.back().packed = false;
  return all;
}

TEST(MemoryLayout, RowwiseBytesMeanWhatThePageSays) {
  const struct {
    Shape shape;
    Extent extent;
  } tensors[] = {{{5, 100}, {1, 5, 100}},
                 {{130, 257}, {1, 130, 257}},
                 {{37}, {1, 1, 37}},
                 {{2, 3, 7, 33}, {6, 7, 33}},
                 {{1, 1}, {1, 1, 1}}};
  for (const Scaling& scaling : scalings()) {
    for (const auto& [shape, extent] : tensors) {
      SCOPED_TRACE(describe(scaling) + " " + to_string(shape));
      const QuantizedTensor q = quantize(waves(shape).view(), scaling);
      const Tensor expected = dequantize(q);
      const PageReader page(q.rowwise, scaling, extent);
      std::size_t i = 0, different = 0;
      for (std::int64_t matrix = 0; matrix < extent.matrices; ++matrix)
        for (std::int64_t row = 0; row < extent.rows; ++row)
          for (std::int64_t col = 0; col < extent.cols; ++col)
            different += page.value(matrix, row, col) != expected.span<float>()[i++];
      EXPECT_EQ(different, 0u);
    }
  }
}

TEST(MemoryLayout, TheColumnwiseCopyIsTheRowwiseOneOfTheTranspose) {
  const std::int64_t rows = 70, cols = 45;
  const Tensor values = waves({rows, cols});
  Tensor transpose = Tensor::values({cols, rows}, DType::f32);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col)
      transpose.span<float>()[static_cast<std::size_t>(col * rows + row)] =
          values.span<float>()[static_cast<std::size_t>(row * cols + col)];
  for (Scaling scaling : scalings()) {
    SCOPED_TRACE(describe(scaling));
    const QuantizedTensor alone = quantize(transpose.view(), scaling);
    scaling.columnwise = true;
    const QuantizedTensor both = quantize(values.view(), scaling);
    EXPECT_EQ(both.columnwise.codes.shape(), (Shape{cols, rows}));
    EXPECT_TRUE(std::ranges::equal(both.columnwise.codes.bytes(), alone.rowwise.codes.bytes()));
    EXPECT_TRUE(std::ranges::equal(both.columnwise.scales.bytes(), alone.rowwise.scales.bytes()));
  }
}

TEST(MemoryLayout, TheSizesOfThePage) {
  const auto bytes = [](const char* name, const Shape& shape, bool columnwise = false) {
    Scaling scaling = preset(name);
    scaling.columnwise = columnwise;
    return make_quantized(shape, DType::f32, scaling).nbytes();
  };
  EXPECT_EQ(bytes("mxfp8", {1024, 1024}), 1'081'344);
  EXPECT_EQ(bytes("mxfp8", {32, 32}, true), 2'112);
  EXPECT_EQ(bytes("mxfp4", {1024, 1024}), 557'056);
  EXPECT_EQ(bytes("mxfp6", {3, 5}), 15);
  EXPECT_EQ(bytes("nvfp4", {1024, 1024}), 589'828);
  EXPECT_EQ(bytes("fp8-1x128", {300, 1000}), 309'600);
  EXPECT_EQ(bytes("fp8-block", {300, 1000}), 300'096);
  EXPECT_EQ(bytes("fp8", {300, 1000}), 300'004);
}

TEST(MemoryLayout, ATensorOfNothingHasAScaleOnlyPerTensor) {
  EXPECT_EQ(quantize(waves({0, 8}).view(), preset("mxfp8")).nbytes(), 0);
  const QuantizedTensor q = quantize(waves({0, 8}).view(), preset("fp8"));
  EXPECT_EQ(q.nbytes(), 4);
  EXPECT_EQ(q.rowwise.scales.span<float>()[0], 1.0F);
}

TEST(MemoryLayout, ScalesOfQuantizeGoThroughTheLayouts) {
  const QuantizedTensor q = quantize(waves({130, 150}).view(), preset("mxfp8"));
  const Tensor& scales = q.rowwise.scales;
  const Tensor swizzled = to_layout(scales, ScaleLayout::swizzled_128x4);
  EXPECT_EQ(swizzled.nbytes(), 2048);
  EXPECT_EQ(swizzled.span<std::uint8_t>()[1552], scales.span<std::uint8_t>()[129 * 5 + 4]);
  EXPECT_TRUE(std::ranges::equal(
      from_layout(swizzled, ScaleLayout::swizzled_128x4, scales.shape()).bytes(), scales.bytes()));
}

}  // namespace
}  // namespace octavo
