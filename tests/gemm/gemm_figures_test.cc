// The figures of docs/numerics/gemm.md that are about usual data.
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

GemmError error_of(const char* name, std::int64_t depth, Accumulator accumulator) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto values = [&](std::int64_t rows) {
    const Tensor tensor = Tensor::values({rows, depth}, DType::f32);
    for (float& x : tensor.span<float>()) x = normal(random);
    return tensor;
  };
  const Tensor x = values(32), w = values(32);
  const QuantizedTensor a = quantize(x.view(), preset(name)), b = quantize(w.view(), preset(name));
  const Tensor result = gemm(a, b, {.accumulator = accumulator, .backend = &reference_backend()});
  return measure_gemm_error(x.view(), w.view(), a, b, result.view());
}

// Deviations over 1024 sums vary by 1 / sqrt(2 * 1024), 2 %; two digits are printed.
TEST(GemmFigures, NormalData) {
  for (const std::int64_t depth : {1024, 4096}) {
    EXPECT_NEAR(error_of("fp8", depth, Accumulator::f16).accumulation.relative_l2, 1.5e-3, 0.1e-3);
    EXPECT_NEAR(error_of("mxfp8", depth, Accumulator::f16).accumulation.relative_l2, 7e-4, 0.5e-4);
    EXPECT_EQ(error_of("mxfp4", depth, Accumulator::f16).accumulation.relative_l2, 0.0);
    EXPECT_NEAR(error_of("fp8", depth, Accumulator::hopper_fp8).accumulation.relative_l2, 1.3e-4,
                0.1e-4);
    const GemmError f32 = error_of("fp8", depth, Accumulator::f32);
    EXPECT_LT(f32.accumulation.relative_l2, 2e-6);
    EXPECT_NEAR(f32.quantization.relative_l2, 3.7e-2, 0.1e-2);
  }
}

}  // namespace
}  // namespace octavo::testing
