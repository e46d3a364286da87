#include "octavo/report/row_block_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/quant/quantize.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

Tensor random_values(std::int64_t rows, std::int64_t cols, DType dtype, unsigned seed,
                     float size = 0.02F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, size);
  const Tensor tensor = Tensor::values({rows, cols}, dtype);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const float x = i % 97 == 0 ? 0.0F : normal(random);
    const auto at = static_cast<std::size_t>(i);
    if (dtype == DType::f32) tensor.span<float>()[at] = x;
    if (dtype == DType::f64) tensor.span<double>()[at] = static_cast<double>(x);
    if (dtype == DType::bf16)
      tensor.span<std::uint16_t>()[at] =
          static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, x) >> 16);
    if (dtype == DType::f16)
      tensor.span<std::uint16_t>()[at] = static_cast<std::uint16_t>(0x2000 + i % 4096);
  }
  return tensor;
}

// Row blocks of `step` rows of the same quantization.
ErrorMetrics by_row_blocks(const Tensor& values, const Scaling& scaling, std::int64_t step,
                           ExponentCounts* scale_counts = nullptr) {
  const std::int64_t rows = values.shape()[0], cols = values.shape()[1];
  const float whole = amax(values.view());
  TensorError error;
  std::vector<std::pair<std::size_t, RowBlockError>> row_blocks;
  for (std::int64_t row = 0; row < rows; row += step) {
    View row_block = values.view();
    row_block.data = static_cast<std::byte*>(row_block.data) + row * row_block.strides[0];
    row_block.shape = {std::min(step, rows - row), cols};
    QuantizeOptions options{.threads = 1};
    if (scaling.scale.format == ScaleFormat::e4m3_f32 || scaling.tile == Tile{0, 0})
      options.given_amax = &whole;
    const QuantizedTensor q = quantize(row_block, scaling, options);
    row_blocks.emplace_back(
        static_cast<std::size_t>(row / step),
        measure_row_block(row_block, q, {.first_row = row, .amax = amax(row_block)}));
  }
  for (auto at = row_blocks.rbegin(); at != row_blocks.rend(); ++at)
    error.add(at->first, at->second);
  if (scale_counts != nullptr) *scale_counts = error.scale_counts();
  const ErrorMetrics before = error.metrics();
  const std::string kept = error.kept();
  EXPECT_EQ(TensorError::restored(kept).metrics(), before);  // to text and back loses nothing
  error.settle();                                            // nor does packing
  EXPECT_EQ(error.metrics(), before);
  EXPECT_EQ(error.kept(), kept);
  return before;
}

void expect_close(const ErrorMetrics& fast, const ErrorMetrics& exact, const std::string& where) {
  // row_error_job.h: 1.2e-6 of a sum of squares, and with two levels 2^-18 = 4e-6 of an error.
  EXPECT_NEAR(fast.sums.error2, exact.sums.error2, 5e-6 * exact.sums.error2) << where;
  EXPECT_NEAR(fast.sums.value2, exact.sums.value2, 1.5e-6 * exact.sums.value2) << where;
  if (exact.sums.error2 > 0) {
    EXPECT_NEAR(fast.sqnr, exact.sqnr, 3e-5) << where;
  }
  EXPECT_NEAR(fast.cosine, exact.cosine, 5e-6 * (1 - exact.cosine) + 1e-12) << where;
  EXPECT_NEAR(fast.max_abs, exact.max_abs, 0x1p-22 * exact.max_abs) << where;
  EXPECT_NEAR(fast.max_relative, exact.max_relative, 0x1p-22 * exact.max_relative) << where;
  EXPECT_EQ(fast.amax, exact.amax) << where;
  EXPECT_EQ(fast.elements, exact.elements) << where;
  EXPECT_EQ(fast.sums.count, exact.sums.count) << where;
  EXPECT_EQ(fast.saturated, exact.saturated) << where;
  EXPECT_EQ(fast.flushed, exact.flushed) << where;
  EXPECT_EQ(fast.values, exact.values) << where;
  EXPECT_EQ(fast.codes, exact.codes) << where;
  EXPECT_EQ(fast.input, exact.input) << where;
  EXPECT_EQ(fast.result, exact.result) << where;
}

TEST(RowBlockError, AgreesWithMeasureError) {
  for (const char* const name :
       support::some_of<const char*>({"fp8", "fp8-channel", "fp8-1x128", "fp8-block", "mxfp8",
                                      "mxfp8:e5m2", "mxfp6", "mxfp4", "mxint8", "int4", "nvfp4"}))
    for (const DType dtype : {DType::bf16, DType::f32, DType::f16, DType::f64})
      for (const std::int64_t cols : {512, 4096 + 160, 48}) {
        if (cols > 512 && dtype != DType::bf16) continue;  // several segments: of one type
        const Tensor values = random_values(256, cols, dtype, 7);
        const Scaling scaling = preset(name);
        const QuantizedTensor q = quantize(values.view(), scaling, {.threads = 1});
        ExponentCounts counts;
        const std::string where = std::string(name) + " " + std::string(dtype_name(dtype));
        const ErrorMetrics exact =
            measure_error(values.view(), q, {.histograms = true, .threads = 1});
        expect_close(by_row_blocks(values, scaling, 256, &counts), exact, where);
        expect_close(by_row_blocks(values, scaling, 128), exact, where + " by row blocks");
        std::int64_t scales = 0;
        for (const std::int64_t count : counts) scales += count;
        EXPECT_EQ(scales, exact.scales.count) << where;
      }
}

TEST(RowBlockError, CountsWhatSaturates) {
  for (const char* const name : {"mxfp8", "mxfp4"}) {
    Scaling scaling = preset(name);
    scaling.scale.rule = ScaleRule::floor;  // the largest values of some blocks are beyond it
    const Tensor values = random_values(128, 1024, DType::bf16, 5);
    const QuantizedTensor q = quantize(values.view(), scaling, {.threads = 1});
    const ErrorMetrics exact = measure_error(values.view(), q, {.histograms = true, .threads = 1});
    EXPECT_GT(exact.saturated, 0) << name;
    expect_close(by_row_blocks(values, scaling, 64), exact, name);
  }
}

TEST(RowBlockError, HugeTinyAndZeroValues) {
  for (const float size : {1e30F, 1e-30F, 0.0F}) {
    const Tensor values = random_values(64, 256, DType::f32, 3, size == 0.0F ? 1.0F : size);
    if (size == 0.0F) std::fill_n(values.span<float>().begin(), 64 * 256, 0.0F);
    const QuantizedTensor q = quantize(values.view(), preset("mxfp8"), {.threads = 1});
    expect_close(by_row_blocks(values, preset("mxfp8"), 32),
                 measure_error(values.view(), q, {.histograms = true, .threads = 1}), "size");
  }
}

TEST(RowBlockError, SumsDoNotDependOnTheOrderTheyComeIn) {
  const Tensor values = random_values(128, 512, DType::bf16, 9);
  const QuantizedTensor q = quantize(values.view(), preset("mxfp8"), {.threads = 1});
  const RowBlockError one = measure_row_block(values.view(), q, {.amax = amax(values.view())});
  const RowBlockError two =
      measure_row_block(values.view(), q, {.histogram_every = 8, .amax = amax(values.view())});
  TensorError forward, backward;
  forward.add(0, one);
  forward.add(1, two);
  backward.add(1, two);
  backward.add(0, one);
  EXPECT_EQ(forward.metrics(), backward.metrics());
  std::int64_t counted = 0;
  for (const std::int64_t count : two.codes) counted += count;
  EXPECT_EQ(counted, 16 * 512);  // every eighth row
}

// The record of a killed call is untrusted: malformed text is read as zeros.
TEST(RowBlockError, AnyTextCanBeRestored) {
  RowBlockError row_block;
  row_block.elements = row_block.count = 4;
  row_block.error2 = 0.1;
  row_block.values[130] = 4;
  row_block.codes.assign(256, 0);
  row_block.codes[255] = 4;
  TensorError error;
  error.add(0, row_block);
  const std::string kept = error.kept();
  EXPECT_EQ(TensorError::restored(kept).metrics().codes, row_block.codes);
  for (std::size_t size = 0; size < kept.size(); ++size)
    (void)TensorError::restored(kept.substr(0, size)).metrics();
  for (const char* text : {"", " ", "x", "1e999", "-1", "nan nan nan",
                           "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 zzzzzzz -zzzzzz",
                           "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 74 -zzzzzzzzz 1 1 1"})
    EXPECT_EQ(TensorError::restored(text).metrics().elements, 0) << text;
}

}  // namespace
}  // namespace octavo
