// Products in their data-oblivious mode are those of the mode that may look at scales first, within
// the rounding of f32 sums; tests/oblivious shows that they do not look.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/octavo.h"
#include "tests/support/every_backend.h"

namespace octavo {
namespace {

Tensor drawn(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor made = Tensor::values(shape, DType::f32);
  for (float& number : made.span<float>()) number = normal(random);
  return made;
}

// Sums of K products of some size: (K + 2) 2^-24 of the sum of their magnitudes, at most 16 K here.
TEST(GemmOblivious, HasTheProductsOfTheModeThatLooks) {
  constexpr std::int64_t kDepth = 160;
  for (const char* name : {"fp8", "fp8-channel", "mxfp8", "mxfp4", "nvfp4", "int8-channel"})
    for (const std::int64_t rows : {1, 5, 40})
      for (const BackendInfo& backend : support::every_backend()) {
        if (backend.kernels == &reference_backend() || !backend.name.starts_with("cpu/")) continue;
        const QuantizedTensor a = quantize(drawn({rows, kDepth}, 1).view(), preset(name)),
                              b = quantize(drawn({48, kDepth}, 2).view(), preset(name));
        const Tensor wanted = gemm(a, b, {.backend = backend.kernels}),
                     got = gemm(a, b, {.oblivious = true, .backend = backend.kernels});
        for (std::size_t i = 0; i < got.span<float>().size(); ++i)
          ASSERT_NEAR(got.span<float>()[i], wanted.span<float>()[i],
                      2.0 * (kDepth + 2) * 0x1p-24 * 16.0 * kDepth)
              << name << " on " << backend.name;
      }
}

TEST(GemmOblivious, RefusesWhatBranches) {
  const Tensor a = drawn({4, 32}, 1), b = drawn({8, 32}, 2);
  EXPECT_THROW((void)gemm(a, b, {.accumulator = Accumulator::f64, .oblivious = true}), Error);
  EXPECT_THROW((void)gemm(a, b, {.oblivious = true, .backend = &reference_backend()}), Error);
  EXPECT_NO_THROW((void)gemm(a, b, {.oblivious = true}));
}

}  // namespace
}  // namespace octavo
