// Transformer Engine's MX scales are octavo's except for a few amaxes. Kernels that compute
// octavo's must detect those: matrices of which one block has such an amax, against reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

constexpr std::int64_t kRows = 96, kCols = 320;

void expect_te(const std::vector<float>& values, const std::string& where) {
  for (const char* name : {"mxfp8", "mxfp8:e5m2", "mxfp6", "mxfp4"}) {
    Scaling scaling = preset(name);
    scaling.scale.arith = Arith::te;
    scaling.encode.nan_input = NanInput::zero;
    scaling.columnwise = true;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor tensor = values_as(values, {kRows, kCols}, dtype);
      const QuantizedTensor wanted =
          quantize(tensor.view(), scaling, {.backend = &reference_backend()});
      for (const BackendInfo& backend : support::every_backend()) {
        const std::string here =
            text(where, ", ", name, " of ", dtype_name(dtype), ", ", backend.name);
        const QuantizedTensor got = quantize(tensor.view(), scaling, {.backend = backend.kernels});
        EXPECT_TRUE(same_bytes(got.rowwise.scales, wanted.rowwise.scales)) << here;
        EXPECT_TRUE(same_bytes(got.rowwise.codes, wanted.rowwise.codes)) << here;
        EXPECT_TRUE(same_bytes(got.columnwise.scales, wanted.columnwise.scales)) << here;
        EXPECT_TRUE(same_bytes(got.columnwise.codes, wanted.columnwise.codes)) << here;
      }
    }
  }
}

std::vector<float> finite_values() { return all_kinds_of_values(kRows * kCols, 3, true); }

TEST(MxTeAgreement, FiniteValuesOfEveryKind) { expect_te(finite_values(), "finite"); }

TEST(MxTeAgreement, OneValueThatIsNotFinite) {
  for (const float other : {HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = finite_values();
    values[70 * kCols + 300] = other;
    expect_te(values, text("with ", other));
  }
}

// Where RN(amax / max) is subnormal: the largest value of the format times 2^-127, and what lies
// next to it.
TEST(MxTeAgreement, AmaxesWhoseQuotientIsSubnormal) {
  for (const float max : {448.0F, 57344.0F, 7.5F, 6.0F}) {
    for (int step = -2; step <= 3; ++step) {
      float amax = std::ldexp(max, -127);
      for (int i = 0; i < std::abs(step); ++i)
        amax = std::nextafter(amax, step < 0 ? 0.0F : HUGE_VALF);
      std::vector<float> values(kRows * kCols, 1.0F);
      for (std::int64_t row = 32; row < 64; ++row)
        for (std::int64_t col = 64; col < 96; ++col)
          values[static_cast<std::size_t>(row * kCols + col)] = row == col - 32 ? amax : amax / 8;
      expect_te(values, text("amax ", max, " x 2^-127, ", step, " places on"));
    }
  }
}

}  // namespace
}  // namespace octavo::testing
