// The second level of NVFP4's scales where copies are Hadamard-transformed: each copy's is made
// from what that copy holds. Values are small integers, so that f32 has all sums of the transform.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "octavo/quant/quantize.h"
#include "octavo/quant/quantizer.h"
#include "octavo/scale/peer_scale.h"

namespace octavo {
namespace {

constexpr std::uint16_t kSigns = 0xA53C;

Tensor integers(std::int64_t rows, std::int64_t cols, int mean) {
  const Tensor values = Tensor::values({rows, cols}, DType::f32);
  std::uint32_t state = 12345;
  for (float& value : values.span<float>()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int>(state >> 28) - 8 + mean);
  }
  return values;
}

// Entry (i, j) of the matrix is -1 to the number of bits that i and j share, after the sign of i.
int sign_of(int i, int j) {
  int sign = (kSigns >> i & 1) != 0 ? -1 : 1;
  for (int bit = 1; bit < 16; bit *= 2)
    if ((i & bit) != 0 && (j & bit) != 0) sign = -sign;
  return sign;
}

// By the definition, over 4; a tail of fewer than 16 values is not transformed.
double transformed_amax(const Tensor& values, bool columnwise) {
  const std::int64_t rows = values.shape()[columnwise ? 1 : 0],
                     cols = values.shape()[columnwise ? 0 : 1];
  const auto at = [&](std::int64_t r, std::int64_t c) {
    const std::int64_t i = columnwise ? c * rows + r : r * cols + c;
    return static_cast<double>(values.span<float>()[static_cast<std::size_t>(i)]);
  };
  double amax = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t first = c / 16 * 16;
      double sum = at(r, c);
      if (first + 16 <= cols) {
        sum = 0;
        for (int i = 0; i < 16; ++i)
          sum += sign_of(i, static_cast<int>(c - first)) * at(r, first + i) / 4;
      }
      amax = std::fmax(amax, std::fabs(sum));
    }
  }
  return amax;
}

Scaling transformed(bool rowwise, bool columnwise) {
  Scaling scaling = preset("nvfp4");
  scaling.columnwise = true;
  scaling.hadamard = {.rowwise = rowwise, .columnwise = columnwise, .signs = kSigns};
  return scaling;
}

float tensor_scale(const QuantizedCopy& copy) { return copy.tensor_scale.span<float>()[0]; }

float wanted(double amax) { return static_cast<float>(amax) / (448.0F * 6.0F); }

TEST(HadamardAmax, EachCopyHasItsOwn) {
  for (const auto& [rows, cols] : {std::pair{32, 48}, std::pair{20, 33}, std::pair{5, 16}}) {
    for (const int mean : {0, 9}) {
      const Tensor values = integers(rows, cols, mean);
      const double plain = static_cast<double>(amax(values.view()));
      for (const bool turns_rows : {false, true}) {
        for (const bool turns_columns : {false, true}) {
          if (!turns_rows && !turns_columns) continue;
          const QuantizedTensor q = quantize(values.view(), transformed(turns_rows, turns_columns));
          EXPECT_EQ(tensor_scale(q.rowwise),
                    wanted(turns_rows ? transformed_amax(values, false) : plain));
          EXPECT_EQ(tensor_scale(q.columnwise),
                    wanted(turns_columns ? transformed_amax(values, true) : plain));
        }
      }
    }
  }
}

TEST(HadamardAmax, OneCopyAloneIsTheSameAsBoth) {
  const Tensor values = integers(40, 24, 5);
  const QuantizedTensor both = quantize(values.view(), transformed(false, true));
  Scaling scaling = transformed(false, true);
  scaling.rowwise = false;
  const QuantizedTensor one = quantize(values.view(), scaling);
  EXPECT_EQ(tensor_scale(one.columnwise), tensor_scale(both.columnwise));
  const auto bytes = [](const Tensor& tensor) {
    return std::vector<std::byte>(tensor.bytes().begin(), tensor.bytes().end());
  };
  EXPECT_EQ(bytes(one.columnwise.codes), bytes(both.columnwise.codes));
  EXPECT_EQ(bytes(one.columnwise.scales), bytes(both.columnwise.scales));
}

TEST(HadamardAmax, AnAmaxThatIsGivenIsThatOfBoth) {
  const Tensor values = integers(32, 32, 5);
  const float given = 7.0F;
  const QuantizedTensor q =
      quantize(values.view(), transformed(false, true), {.given_amax = &given});
  EXPECT_EQ(tensor_scale(q.rowwise), wanted(7.0));
  EXPECT_EQ(tensor_scale(q.columnwise), wanted(7.0));
}

// Transformer Engine transforms by a product of bf16 matrices: its results have eight bits, and the
// amaxes are of those.
TEST(HadamardAmax, TransformerEngineRoundsToBf16) {
  const Tensor values = integers(32, 48, 100);
  Scaling scaling = transformed(true, true);
  scaling.scale.arith = Arith::te;
  const QuantizedTensor q = quantize(values.view(), scaling);
  EXPECT_EQ(transformed_amax(values, false), 210.75);  // or rounding would change nothing
  for (const bool columnwise : {false, true}) {
    const auto amax = rounded_to_bf16(static_cast<float>(transformed_amax(values, columnwise)));
    EXPECT_EQ(tensor_scale(columnwise ? q.columnwise : q.rowwise), 1.0F / (448.0F * 6.0F / amax));
  }
}

// A group with a fault is non-finite as a whole; the other groups make the scale.
TEST(HadamardAmax, FaultsDoNotCount) {
  for (const float fault : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF}) {
    Tensor values = integers(32, 16, 0);
    for (std::int64_t row = 0; row < 16; ++row)
      values.span<float>()[static_cast<std::size_t>(row * 16 + 3)] = 0.0F;
    const double clean = transformed_amax(values, true);
    values.span<float>()[3] = fault;
    const QuantizedTensor q = quantize(values.view(), transformed(false, true));
    EXPECT_EQ(tensor_scale(q.columnwise), wanted(clean));
  }
}

}  // namespace
}  // namespace octavo
