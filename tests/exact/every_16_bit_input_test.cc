// All 65,536 bf16 and all 65,536 f16 inputs x every format x every rounding x every overflow policy
// x every backend that runs here, codes and counts, against the oracle. Zero mismatches.
#include "tests/exact/exact_harness.h"

namespace exact {
namespace {

const Inputs& inputs_of(DType dtype) {
  static const Inputs kHalf = all_16_bit(DType::f16), kBfloat = all_16_bit(DType::bf16);
  return dtype == DType::f16 ? kHalf : kBfloat;
}

class Every16BitInput : public EveryFormat {};

TEST_P(Every16BitInput, EveryRoundingAndOverflowOnEveryBackend) {
  const oracle::Oracle oracle(GetParam());
  const Format format = parse_format(GetParam().name);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Examiner examiner(oracle, inputs_of(dtype));
    for (const Rounding rounding : kRoundings) {
      for (const Overflow overflow : kOverflows) {
        const bool with_counts = overflow == Overflow::saturate || overflow == Overflow::ieee;
        ASSERT_TRUE(examiner.holds(format, policy_of(rounding, overflow), with_counts));
      }
    }
  }
}

// The choices that only some formats know: NaN codes, NaN into formats without it, signs into
// unsigned formats, zero into formats without it.
TEST_P(Every16BitInput, EveryOtherChoiceOnEveryBackend) {
  const oracle::Oracle oracle(GetParam());
  const Format format = parse_format(GetParam().name);
  const Examiner examiner(oracle, inputs_of(DType::bf16));
  for (const Overflow overflow : {Overflow::saturate, Overflow::ieee}) {
    const EncodePolicy plain = policy_of(Rounding::nearest_even, overflow);
    for (const NanCode nan_code :
         {NanCode::signed_ones, NanCode::positive_ones, NanCode::signed_quiet}) {
      EncodePolicy policy = plain;
      policy.nan_code = nan_code;
      ASSERT_TRUE(examiner.holds(format, policy, true))
          << "nan_code " << static_cast<int>(nan_code);
    }
    for (const NanInput nan_input : {NanInput::zero, NanInput::max, NanInput::negated_zero}) {
      EncodePolicy policy = plain;
      policy.nan_input = nan_input;
      ASSERT_TRUE(examiner.holds(format, policy, true));
    }
    if (GetParam().is_signed) continue;
    for (const Rounding rounding :
         {Rounding::nearest_even, Rounding::up, Rounding::down, Rounding::stochastic}) {
      for (const NegativeInput negative :
           {NegativeInput::clamp, NegativeInput::magnitude, NegativeInput::nan}) {
        for (const bool tiny_rounds_up : {false, true}) {
          EncodePolicy policy = plain;
          policy.rounding = rounding;
          policy.negative_input = negative;
          policy.zero_input = negative == NegativeInput::nan ? ZeroInput::nan : ZeroInput::smallest;
          policy.tiny_rounds_up = tiny_rounds_up;
          ASSERT_TRUE(examiner.holds(format, policy, true))
              << "negative_input " << static_cast<int>(negative) << " tiny_rounds_up "
              << tiny_rounds_up;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Every16BitInput, testing::ValuesIn(oracle::all_rows()), row_name);

}  // namespace
}  // namespace exact
