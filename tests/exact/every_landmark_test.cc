// f32 and f64 cannot be tested exhaustively, but the code only changes at grid values and at the
// midpoints between them: each of those, and its neighbours one ulp away, in both types and both
// signs, plus the edges of the types.
#include <limits>
#include <random>

#include "tests/exact/exact_harness.h"

namespace exact {
namespace {

template <typename Float, typename Bits>
Inputs landmark_inputs(const oracle::Oracle& oracle, DType dtype) {
  using Limits = std::numeric_limits<Float>;
  Inputs inputs{.dtype = dtype, .bytes = {}, .values = {}};
  const auto both_signs = [&](Float value) {
    inputs.add(value);
    inputs.add(-value);
  };
  for (const double mark : oracle.landmarks()) {
    if (mark > double{Limits::max()}) continue;
    // Rounded to Float the mark may move; its neighbours still enclose the mark.
    const auto near = static_cast<Float>(mark);
    for (const Float value :
         {std::nextafter(near, Float{0}), near, std::nextafter(near, Limits::infinity())})
      both_signs(value);
  }
  for (const Float value : {Float{0}, Limits::denorm_min(), Limits::min(), Limits::max(),
                            Limits::infinity(), Float{1}}) {
    both_signs(value);
  }
  // NaN with the smallest, the plain quiet, a middle and the largest payload, both signs.
  const Bits inf = std::bit_cast<Bits>(Limits::infinity()),
             sign = Bits{1} << (8 * sizeof(Bits) - 1);
  const Bits payloads = ~inf & ~sign;
  for (const Bits payload : {Bits{1}, payloads / 2 + 1, payloads / 3, payloads}) {
    inputs.add(inf | payload, std::numeric_limits<double>::quiet_NaN());
    inputs.add(sign | inf | payload, -std::numeric_limits<double>::quiet_NaN());
  }
  // Random bits; the seed is fixed so that a failure can be reproduced.
  std::mt19937_64 random(20240229);
  for (int i = 0; i < 4096; ++i) {
    const auto bits = static_cast<Bits>(random());
    inputs.add(bits, static_cast<double>(std::bit_cast<Float>(bits)));
  }
  return inputs;
}

class EveryLandmark : public EveryFormat {
 protected:
  static void examine(const oracle::FormatRow& row, const oracle::Oracle& oracle,
                      const Inputs& inputs) {
    const Format format = parse_format(row.name);
    const Examiner examiner(oracle, inputs);
    for (const Rounding rounding : kRoundings) {
      for (const Overflow overflow : kOverflows) {
        // 16-bit formats have hundreds of thousands of landmarks: the two policies that span the
        // others.
        if (row.bits() > 10 && overflow != Overflow::saturate && overflow != Overflow::ieee)
          continue;
        ASSERT_TRUE(examiner.holds(format, policy_of(rounding, overflow), true));
      }
    }
  }
};

TEST_P(EveryLandmark, InF32) {
  const oracle::Oracle oracle(GetParam());
  examine(GetParam(), oracle, landmark_inputs<float, std::uint32_t>(oracle, DType::f32));
}

TEST_P(EveryLandmark, InF64) {
  const oracle::Oracle oracle(GetParam());
  examine(GetParam(), oracle, landmark_inputs<double, std::uint64_t>(oracle, DType::f64));
}

// The peers that round f64 twice: the oracle takes the hardware's cast to f32, then the second
// rounding.
TEST_P(EveryLandmark, InF64ThroughF32) {
  if (GetParam().bits() > 10) GTEST_SKIP() << "no peer has it";
  const oracle::Oracle oracle(GetParam());
  Inputs inputs = landmark_inputs<double, std::uint64_t>(oracle, DType::f64);
  for (double& value : inputs.values) value = static_cast<double>(static_cast<float>(value));
  const Examiner examiner(oracle, inputs);
  for (const Rounding rounding : kRoundings) {
    EncodePolicy policy = policy_of(rounding, Overflow::ieee);
    policy.via_f32 = true;
    ASSERT_TRUE(examiner.holds(parse_format(GetParam().name), policy, true));
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryLandmark, testing::ValuesIn(oracle::all_rows()), row_name);

}  // namespace
}  // namespace exact
