// GEMM at its limits: nothing to sum, nothing to store, and so many K blocks that a grid dimension
// cannot hold them.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/octavo.h"
#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

constexpr Accumulator kEvery[] = {Accumulator::native, Accumulator::f32, Accumulator::f16,
                                  Accumulator::f64, Accumulator::hopper_fp8};

// Runs anywhere: memory is not accessed.
TEST(GemmEdgesOffered, NothingToSum) {
  for (const Accumulator accumulator : kEvery)
    for (const std::int64_t promote_every : {0, 32, 128}) {
      GemmJob job{.accumulator = accumulator, .promote_every = promote_every};
      job.a.values = {.rows = 2, .cols = 0};
      job.b.values = {.rows = 3, .cols = 0};
      job.out = {.dtype = DType::bf16, .rows = 2, .cols = 3, .row_pitch = 6, .col_stride = 2};
      EXPECT_TRUE(cuda::gemm_offered(job)) << name_of(accumulator) << ", " << promote_every;
    }
}

using GemmEdgesOnDevice = support::CudaTest;

QuantizedTensor there(const char* name, std::int64_t rows, std::int64_t cols) {
  return to_device(made(quantized_as(name), usual_values(rows, cols, 1), rows, cols).quantized,
                   kThere);
}

std::vector<float> floats_of(const Tensor& result) {
  const Tensor here = to_host(result.view());
  return {here.span<float>().begin(), here.span<float>().end()};
}

TEST_F(GemmEdgesOnDevice, NothingToSum) {
  const Tensor bias = to_device(values_as({1, -2, 3}, {3}, DType::f32).view(), kThere),
               residual = to_device(values_as({10, 20, 30, 40, 50, 60}, {2, 3}, DType::f32).view(),
                                    kThere);
  for (const char* name : {"fp8", "fp8-channel", "mxfp8", "fp8-block"}) {
    const QuantizedTensor a = there(name, 2, 0), b = there(name, 3, 0);
    for (const Accumulator accumulator : kEvery) {
      GemmOptions options{.accumulator = accumulator};
      EXPECT_EQ(floats_of(gemm(a, b, options)), std::vector<float>(6, 0.0F))
          << name << ", " << name_of(accumulator);
      options.bias = bias.view();
      options.activation = ActivationKind::relu;
      options.residual = residual.view();
      EXPECT_EQ(floats_of(gemm(a, b, options)), (std::vector<float>{11, 20, 33, 41, 50, 63}))
          << name << ", " << name_of(accumulator);
    }
  }
}

TEST_F(GemmEdgesOnDevice, NothingToFill) {
  for (const char* name : {"fp8", "mxfp8", "nvfp4", "fp8-block"})
    for (const auto& [m, n] : {std::pair{0, 3}, std::pair{3, 0}, std::pair{0, 0}}) {
      const QuantizedTensor a = there(name, m, 40), b = there(name, n, 40);
      EXPECT_EQ(gemm(a, b).shape(), (Shape{m, n})) << name;
    }
}

// Rows that are zero except for one value in each of some columns.
QuantizedTensor sparse(const char* name, std::int64_t cols,
                       const std::vector<std::vector<std::pair<std::int64_t, float>>>& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<float> values(static_cast<std::size_t>(count * cols));
  for (std::int64_t row = 0; row < count; ++row)
    for (const auto& [col, value] : rows[static_cast<std::size_t>(row)])
      values[static_cast<std::size_t>(row * cols + col)] = value;
  return to_device(quantize(values_as(values, {count, cols}, DType::f32).view(), preset(name)),
                   kThere);
}

// 448 is the largest value of e4m3, so the scale of its block is 1. Sums are integers below 2^24,
// and no two products are in one run of 128: exact.
TEST_F(GemmEdgesOnDevice, ScalesOfMoreBlocksThanAGridHas) {
  constexpr std::int64_t kK = std::int64_t{65536} * 128 + 128 + 40;
  const QuantizedTensor a = sparse("fp8-1x128", kK, {{{0, 448}, {5'000'000, 448}, {kK - 1, 448}}}),
                        b = sparse("fp8-1x128", kK,
                                   {{{0, 448}, {5'000'000, 448}, {kK - 1, 448}}, {{kK - 1, -448}}});
  for (const Accumulator accumulator : {Accumulator::native, Accumulator::hopper_fp8})
    EXPECT_EQ(floats_of(gemm(a, b, {.accumulator = accumulator})),
              (std::vector<float>{3 * 448 * 448, -448 * 448}))
        << name_of(accumulator);
}

// Blocks of A are twelve binades apart, so that both operands are aligned by 128 columns. 448^2 /
// 2^12 is 49.
TEST_F(GemmEdgesOnDevice, MxOfMoreColumnsThanAGridHas) {
  constexpr std::int64_t kK = std::int64_t{65536} * 512 + 512 + 64;
  const QuantizedTensor a = sparse("mxfp8", kK, {{{0, 448}, {kK - 1, 448.0F / 4096}}}),
                        b = sparse("mxfp8", kK, {{{0, 448}, {kK - 1, 448}}});
  EXPECT_EQ(floats_of(gemm(a, b)), (std::vector<float>{448 * 448 + 49}));
}

}  // namespace
}  // namespace octavo::testing
