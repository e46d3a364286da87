// measure_error against an oracle that loops over the dequantized tensor, for every preset, type
// and shape.
#include "octavo/report/metrics.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/report/metrics_testing_internal.h"

namespace octavo {
namespace {

// Terms are rounded once, and go through at most two pieces' worth of additions and one for every
// piece: docs/numerics/metrics.md. Sums of equal signs lose no more than that; so does `product`
// relative to the sum of magnitudes.
double bound(std::int64_t n) {
  return (3.0 + 2 * 16384 + static_cast<double>(n) / 16384) * 0x1p-53;
}

void expect_near(double got, long double wanted, double relative, const std::string& what) {
  EXPECT_NEAR(got, static_cast<double>(wanted), relative * std::fabs(static_cast<double>(wanted)))
      << what;
}

void expect_metrics(const View& values, const QuantizedTensor& q, const std::string& name) {
  SCOPED_TRACE(name);
  const testing::Expected wanted = testing::expected_metrics(values, q);
  const ErrorMetrics got =
      measure_error(values, q, {.rows = true, .tiles = true, .histograms = true});
  const std::int64_t n = element_count(values.shape);
  const double close = bound(n);
  EXPECT_EQ(got.elements, n);
  EXPECT_EQ(got.sums.count, wanted.count);
  expect_near(got.sums.error2, wanted.error2, close, "error2");
  expect_near(got.sums.value2, wanted.value2, close, "value2");
  if (wanted.count > 0) expect_near(got.mse, wanted.error2 / wanted.count, 2 * close, "mse");
  if (wanted.error2 > 0) {
    expect_near(got.relative_l2, std::sqrt(wanted.error2 / wanted.value2), 2 * close, "l2");
    const double sqnr = 10 * std::log10(static_cast<double>(wanted.value2 / wanted.error2));
    EXPECT_NEAR(got.sqnr, sqnr, 20 * close);
    EXPECT_NEAR(got.effective_bits, (sqnr - 1.76) / 6.02, 20 * close);
  }
  if (wanted.value2 > 0 && wanted.result2 > 0) {
    EXPECT_NEAR(got.cosine,
                static_cast<double>(wanted.product /
                                    (std::sqrt(wanted.value2) * std::sqrt(wanted.result2))),
                4 * close);
  }
  EXPECT_EQ(got.max_abs, wanted.max_abs);
  EXPECT_EQ(got.max_relative, wanted.max_relative);
  EXPECT_EQ(got.amax, wanted.amax);
  EXPECT_EQ(got.saturated, wanted.saturated);
  EXPECT_EQ(got.flushed, wanted.flushed);
  EXPECT_EQ(got.input, (NonFiniteCounts{wanted.nan_in, wanted.inf_in}));
  EXPECT_EQ(got.result, (NonFiniteCounts{wanted.nan_out, wanted.inf_out}));
  ASSERT_EQ(got.rows.size(), wanted.row_error2.size());
  for (std::size_t i = 0; i < got.rows.size(); ++i) {
    EXPECT_EQ(got.rows[i].count, wanted.row_count[i]) << i;
    expect_near(got.rows[i].error2, wanted.row_error2[i], close, text("row ", i));
  }
  ASSERT_EQ(got.tiles.size(), wanted.tile_error2.size());
  for (std::size_t i = 0; i < got.tiles.size(); ++i) {
    EXPECT_EQ(got.tiles[i].count, wanted.tile_count[i]) << i;
    EXPECT_EQ(got.tiles[i].max_abs, wanted.tile_max_abs[i]) << i;
    expect_near(got.tiles[i].error2, wanted.tile_error2[i], close, text("tile ", i));
  }
  std::int64_t binned = got.values.zeros, coded = 0;
  for (const std::int64_t count : got.values.counts) binned += count;
  for (const std::int64_t count : got.codes) coded += count;
  EXPECT_EQ(binned, wanted.finite);
  EXPECT_EQ(coded, n);
}

class EveryPreset : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPreset, OnEveryType) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const bool finite : {true, false}) {
      const Tensor values = testing::sample_values({37, 173}, dtype, finite);
      expect_metrics(values.view(), quantize(values.view(), preset(GetParam())),
                     text(dtype_name(dtype), finite ? " finite" : ""));
    }
}

TEST_P(EveryPreset, OnEveryShape) {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{700}, Shape{1, 1}, Shape{3, 5, 70}, Shape{2, 3, 4, 33},
        Shape{130, 129}, Shape{2, 20000}, Shape{20000, 1}}) {
    const Tensor values = testing::sample_values(shape, DType::f32, true);
    expect_metrics(values.view(), quantize(values.view(), preset(GetParam())), to_string(shape));
  }
}

TEST_P(EveryPreset, OfNothing) {
  for (const Shape& shape : {Shape{0}, Shape{0, 5}, Shape{5, 0}, Shape{2, 0, 3}}) {
    const Tensor values = Tensor::values(shape, DType::f32);
    const ErrorMetrics got =
        measure_error(values.view(), quantize(values.view(), preset(GetParam())),
                      {.rows = true, .tiles = true, .histograms = true});
    EXPECT_EQ(got.elements, 0);
    EXPECT_EQ(got.mse, 0);
    EXPECT_EQ(got.cosine, 1);
    EXPECT_EQ(got.bits_per_value, 0);
    EXPECT_TRUE(std::isinf(got.sqnr));
    EXPECT_TRUE(got.values.counts.empty());
  }
}

std::string word(const ::testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  for (char& c : out) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}
INSTANTIATE_TEST_SUITE_P(Metrics, EveryPreset, ::testing::ValuesIn(preset_names()), word);

TEST(Metrics, OtherTilesAxesAndFormats) {
  const Tensor values = testing::sample_values({5, 30, 67}, DType::f32);
  const auto measure = [&](const std::string& name, const Scaling& scaling) {
    expect_metrics(values.view(), quantize(values.view(), scaling), name);
  };
  for (const Tile tile :
       {Tile{0, 1}, Tile{1, 7}, Tile{32, 1}, Tile{3, 5}, Tile{5, 0}, Tile{0, 24}}) {
    Scaling scaling = preset("mxfp4");
    scaling.tile = tile;
    measure(text("tile ", tile.rows, "x", tile.cols), scaling);
  }
  for (const int axis : {0, 1, -2}) {
    Scaling scaling = preset("mxfp6");
    scaling.axis = axis;
    measure(text("axis ", axis), scaling);
  }
  Scaling wide = preset("fp8-1x128");
  wide.format = parse_format("e5m10");
  measure("16 bits", wide);
  Scaling loose = preset("nvfp4");
  loose.packed = false;
  measure("unpacked", loose);
  Scaling ieee = preset("fp8:e5m2");
  ieee.encode.overflow = Overflow::ieee;
  ieee.scale.margin = -4;
  measure("ieee", ieee);
}

TEST(Metrics, ValuesOfAnyStrides) {
  const Tensor whole = testing::sample_values({40, 60, 8}, DType::bf16);
  View part = whole.view();  // every second row, backwards, of every third matrix
  part.shape = {13, 30, 8};
  part.strides = {3 * part.strides[0], -2 * part.strides[1], part.strides[2]};
  part.data = static_cast<std::byte*>(part.data) + 59 * whole.view().strides[1];
  View transposed = whole.view();
  transposed.shape = {8, 60, 40};
  transposed.strides = {whole.view().strides[2], whole.view().strides[1], whole.view().strides[0]};
  for (const char* name : {"mxfp8", "fp8-block", "fp8", "nvfp4"})
    for (const View& view : {part, transposed})
      expect_metrics(view, quantize(view, preset(name)), name);
}

}  // namespace
}  // namespace octavo
