// The same numbers for any number of threads, whatever tiles the row blocks must not split.
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "octavo/quant/quantize.h"
#include "octavo/report/operation/gemm_error.h"

namespace octavo {
namespace {

Tensor random_values(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const Tensor tensor = Tensor::values({rows, cols}, DType::f64);
  for (double& x : tensor.span<double>()) x = static_cast<double>(normal(random)) * (1 + 0x1p-40);
  return tensor;
}

// More rows than one row block, for tiles of many rows, of one row and of all rows; results of any
// type and strides.
TEST(GemmErrorThreads, RowBlocksAndTypes) {
  const std::int64_t m = 301, n = 600, k = 7;
  const Tensor a = random_values(m, k, 3), b = random_values(n, k, 4);
  Scaling tall = preset("fp8");
  tall.tile = {0, 4};
  for (const Scaling& scaling : {preset("fp8-channel"), preset("fp8-block"), preset("fp8"), tall}) {
    const QuantizedTensor qa = quantize(a.view(), scaling), qb = quantize(b.view(), scaling);
    const Tensor result = gemm(qa, qb, {.out = DType::bf16});
    const GemmError one = measure_gemm_error(a.view(), b.view(), qa, qb, result.view(), {1});
    for (const int threads : {2, 3})
      EXPECT_EQ(measure_gemm_error(a.view(), b.view(), qa, qb, result.view(), {threads}), one);
    // bf16 rounds by at most 2^-8, evenly: 2^-8 / sqrt(3) or so.
    EXPECT_GT(one.accumulation.relative_l2, 1e-3);
    EXPECT_LT(one.accumulation.relative_l2, 0x1p-8);
    EXPECT_GT(one.quantization.relative_l2, 0.01);
    EXPECT_LT(one.quantization.relative_l2, 0.06);
    // The same product, the other way round: its result lies transposed in memory.
    const Tensor other = gemm(qb, qa, {.out = DType::bf16});
    View transposed = other.view();
    std::swap(transposed.shape[0], transposed.shape[1]);
    std::swap(transposed.strides[0], transposed.strides[1]);
    const GemmError same = measure_gemm_error(a.view(), b.view(), qa, qb, transposed);
    EXPECT_NEAR(same.total.relative_l2, one.total.relative_l2, 1e-4 * one.total.relative_l2);
  }
}

}  // namespace
}  // namespace octavo
