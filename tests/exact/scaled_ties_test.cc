// Fused quantize kernels (encode_scaled) have encoders of their own. With a scale of one, codes are
// those of the values: every number of a format, every tie between two, and their neighbours at
// every distance that an f32 can be told apart at, against a search among the format's values.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "tests/support/every_backend.h"

namespace octavo {
namespace {

// Numbers of one mantissa and exponent width, from zero to the largest.
std::vector<double> values_of(int mantissa_bits, int bias, int count) {
  std::vector<double> values;
  for (int field = 0; field < count; ++field) {
    const int exponent = field >> mantissa_bits, mantissa = field & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    values.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                   : std::ldexp(1 + fraction, exponent - bias));
  }
  return values;
}

std::uint32_t nearest(const std::vector<double>& values, double magnitude) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double d = std::abs(values[i] - magnitude), least = std::abs(values[best] - magnitude);
    if (d < least || (d == least && i % 2 == 0)) best = i;
  }
  return static_cast<std::uint32_t>(best);
}

// Values, ties and their neighbours, of both signs, none above the largest.
std::vector<float> questions(const std::vector<double>& values) {
  std::vector<float> out;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    for (const double at : {values[i], (values[i] + values[i + 1]) / 2, values[i + 1]}) {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(at));
      for (int distance = 0; distance < 24; ++distance) {
        for (const std::uint32_t near : {bits, bits + (1u << distance), bits - (1u << distance)}) {
          const auto x = std::bit_cast<float>(near & 0x7FFFFFFFu);
          if (!(x <= static_cast<float>(values.back()))) continue;
          out.push_back(x);
          out.push_back(-x);
        }
      }
    }
  }
  return out;
}

struct Question {
  const char* preset;
  int mantissa_bits, bias, count;
  std::int64_t tile;  // columns of a tile; 0: all of them
  std::uint32_t sign;
  float given_amax;  // 0: none
};

class ScaledTies : public ::testing::TestWithParam<Question> {};

TEST_P(ScaledTies, RoundToEven) {
  const Question& question = GetParam();
  const std::vector<double> values =
      values_of(question.mantissa_bits, question.bias, question.count);
  const auto largest = static_cast<float>(values.back());
  // Every tile begins with the largest value, which makes its scale one.
  std::vector<float> input;
  for (const float x : questions(values)) {
    const auto at = static_cast<std::int64_t>(input.size());
    if (question.tile == 0 ? at == 0 : at % question.tile == 0) input.push_back(largest);
    input.push_back(x);
  }
  // A given amax may be less than what is there.
  if (question.tile == 0 && question.given_amax != 0)
    for (const float x : {449.0F, 463.99F, 464.0F, 465.0F, 480.0F, 512.0F, 1e5F, 0x1p30F, 3e38F})
      input.insert(input.end(), {x, -x});
  const auto n = static_cast<std::int64_t>(input.size());
  ASSERT_GT(n, 500);
  Scaling scaling = preset(question.preset);
  for (const BackendInfo& backend : support::every_backend()) {
    const QuantizeOptions options{
        .threads = 1,
        .given_amax = question.given_amax != 0 ? &question.given_amax : nullptr,
        .backend = backend.kernels};
    const QuantizedTensor q =
        quantize(value_view(input.data(), DType::f32, {1, n}), scaling, options);
    const auto* codes = reinterpret_cast<const std::uint8_t*>(q.rowwise.codes.bytes().data());
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t code =
          scaling.format.bits() == 4 ? codes[i / 2] >> (i % 2 * 4) & 15u : std::uint32_t{codes[i]};
      const float x = input[static_cast<std::size_t>(i)];
      const std::uint32_t wanted =
          nearest(values, std::abs(static_cast<double>(x))) | (std::signbit(x) ? question.sign : 0);
      ASSERT_EQ(code, wanted) << backend.kernels->name << ": element " << i << ", " << x << " = "
                              << std::hexfloat << x;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScaledTies,
                         ::testing::Values(Question{"nvfp4", 1, 1, 8, 16, 0x8, 448.0F * 6.0F},
                                           Question{"fp8", 3, 7, 127, 0, 0x80, 0},
                                           Question{"fp8-1x128", 3, 7, 127, 128, 0x80, 0},
                                           Question{"fp8", 3, 7, 127, 0, 0x80, 448.0F}),
                         [](const auto& one) {
                           std::string name = one.param.preset;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name + (one.param.given_amax != 0 ? "_given" : "");
                         });

}  // namespace
}  // namespace octavo
