// Long FP8 sums of one sign, where the tensor cores' truncation adds up: all of it is bias.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/gemm_forced.h"
#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

constexpr Sizes kSizes{128, 144, 16384};

// With promotion to FP32 every 128 products, sums miss 5.0e-4 of uniform data, whatever K
// (docs/numerics/gemm.md), and 5.5e-4 of the codes here, by the model; without promotion they miss
// a quarter. Rounding 18432 results to bf16 moves their sum by 2^-9 / sqrt(3 * 18432) of it, 8e-6,
// in the mean.
constexpr double kMaxBias = 6e-4;

// Sums are about 5900, in the middle of a binade: around 4096 a rounding to bf16 would have a bias
// of its own, since numbers above it are twice as far apart.
QuantizedTensor positive(const std::string& scaling, std::int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0.0F, 1.2F);
  std::vector<float> values(static_cast<std::size_t>(rows * kSizes.k));
  for (float& x : values) x = uniform(random);
  return quantize(values_as(values, {rows, kSizes.k}, DType::f32).view(), preset(scaling),
                  {.backend = &reference_backend()});
}

// The sum of all elements of the exact product is that of all products of two columns' sums.
double sum_of_product(const QuantizedTensor& a, const QuantizedTensor& b) {
  const auto column_sums = [](const QuantizedTensor& tensor) {
    const oracle::Numbers numbers = oracle::numbers_of(tensor);
    std::vector<double> sums(static_cast<std::size_t>(numbers.cols), 0.0);
    for (std::size_t i = 0; i < numbers.value.size(); ++i)
      sums[i % sums.size()] += numbers.value[i];
    return sums;
  };
  const std::vector<double> x = column_sums(a), y = column_sums(b);
  double sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * y[k];
  return sum;
}

double bias_of(const Tensor& got, double exact) {
  double sum = 0;
  for_each_element(got, [&](std::int64_t, std::int64_t, double value) { sum += value; });
  return sum / exact - 1;
}

struct Pair {
  const char *a, *b;
};

class GemmOfOneSign : public support::CudaTest {};

TEST_F(GemmOfOneSign, OctavosKernelsAreTheModel) {
  for (const Pair& pair : {Pair{"fp8", "fp8"}, Pair{"fp8-channel", "fp8-channel"},
                           Pair{"fp8-1x128", "fp8-block"}, Pair{"fp8-1x128", "fp8-1x128"}}) {
    const QuantizedTensor a = positive(pair.a, kSizes.m, 1), b = positive(pair.b, kSizes.n, 2);
    const Tensor got = to_host(
        gemm(to_device(a, kThere), to_device(b, kThere), {.accumulator = Accumulator::hopper_fp8})
            .view());
    EXPECT_EQ(differences(got, model_of(a, b)), "") << pair.a << " by " << pair.b;
    EXPECT_LE(std::fabs(bias_of(got, sum_of_product(a, b))), kMaxBias)
        << pair.a << " by " << pair.b;
  }
}

// What native may give: octavo's kernels, and cuBLASLt's where it takes the product.
TEST_F(GemmOfOneSign, NativeHasNoMoreBias) {
  for (const char* scaling : {"fp8", "fp8-channel"}) {
    const QuantizedTensor a = positive(scaling, kSizes.m, 1), b = positive(scaling, kSizes.n, 2),
                          x = to_device(a, kThere), w = to_device(b, kThere);
    const double exact = sum_of_product(a, b);
    for (const bool library : {false, true}) {
      const ForcedLibrary forced(library);
      const double bias = bias_of(to_host(gemm(x, w, {.out = DType::bf16}).view()), exact);
      EXPECT_LE(std::fabs(bias), kMaxBias)
          << scaling << (library ? ", cuBLASLt where it is there" : ", octavo");
      RecordProperty(text("bias_", scaling, library ? "_library" : "_own"), std::to_string(bias));
    }
  }
}

}  // namespace
}  // namespace octavo::testing
