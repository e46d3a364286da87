// MX with common exponents on a device: the CPU's bytes, a number that is waited for or stays.
#include <bit>

#include "device_testing.h"

namespace octavo::testing {
namespace {

class FoldOnDevice : public OnDevice {};

TEST_F(FoldOnDevice, SameBytesAsTheCpu) {
  for (const Shape& shape : {Shape{40, 96}, Shape{33, 70}, Shape{3, 4, 200}, Shape{65}, Shape{},
                             Shape{0, 5}, Shape{5, 0}})
    for (const FoldTo to : {FoldTo::rows, FoldTo::blocks_of_128})
      for (const bool columnwise : {false, true}) {
        Scaling scaling = preset("mxfp8");
        scaling.columnwise = columnwise;
        const Tensor values =
            values_as(all_kinds_of_values(element_count(shape), 4), shape, DType::bf16);
        const Folded wanted = fold(quantize(values.view(), scaling), to);
        const Tensor there = to_device(values.view(), kFirst);
        const QuantizedTensor mx = quantize(there.view(), scaling);
        const Folded got = fold(mx, to), at_once = quantize_folded(there.view(), scaling, to);
        EXPECT_EQ(difference(to_host(got.tensor), wanted.tensor), "") << to_string(shape);
        EXPECT_EQ(difference(to_host(at_once.tensor), wanted.tensor), "") << to_string(shape);
        EXPECT_EQ(got.changed, wanted.changed);
        EXPECT_EQ(at_once.changed, wanted.changed);

        // Nothing waits where memory is there.
        QuantizedTensor out = make_folded(shape, DType::bf16, scaling, to, kFirst);
        auto* changed = number(std::int64_t{7});
        captured([&] {
          fold_into(mx, out, {}, changed);
          quantize_folded_into(there.view(), scaling, out, {}, changed);
        });
        EXPECT_EQ(fetched(changed), 7 + 2 * wanted.changed);
        EXPECT_EQ(difference(to_host(out), wanted.tensor), "");
      }
}

// Amaxes, counts and a peer's arithmetic on the way at once are those of the two calls.
TEST_F(FoldOnDevice, OptionsAtOnce) {
  Scaling scaling = preset("mxfp8");
  scaling.scale.arith = Arith::te;
  const Tensor values = values_as(all_kinds_of_values(24 * 96, 6), {24, 96}, DType::f16);
  const Tensor there = to_device(values.view(), kFirst);
  Counts counts;
  float amax = 0;
  const Folded wanted =
      quantize_folded(values.view(), scaling, FoldTo::rows, {.counts = &counts, .amax = &amax});
  Counts* counts_there = number(Counts{5, 5, 5});
  float* amax_there = number(7e30F);
  const Folded got = quantize_folded(there.view(), scaling, FoldTo::rows,
                                     {.counts = counts_there, .amax = amax_there});
  const Folded plain = quantize_folded(there.view(), scaling, FoldTo::rows);
  for (const Folded* one : {&got, &plain}) {
    EXPECT_EQ(difference(to_host(one->tensor), wanted.tensor), "");
    EXPECT_EQ(one->changed, wanted.changed);
  }
  EXPECT_EQ(fetched(counts_there), counts);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fetched(amax_there)), std::bit_cast<std::uint32_t>(amax));
}

TEST_F(FoldOnDevice, WhatCannotBe) {
  const Tensor values = values_as(all_kinds_of_values(64 * 64, 4), {64, 64}, DType::f32);
  const QuantizedTensor here = quantize(values.view(), preset("mxfp8"));
  const QuantizedTensor mx = to_device(here, kFirst);
  QuantizedTensor out = make_folded({64, 64}, DType::f32, preset("mxfp8"), FoldTo::rows);
  refused(ErrorCode::invalid_argument, "copy one to the other", [&] { fold_into(mx, out); });
  std::int64_t changed = 0;
  QuantizedTensor there = make_folded({64, 64}, DType::f32, preset("mxfp8"), FoldTo::rows, kFirst);
  refused(ErrorCode::invalid_argument, "changed", [&] { fold_into(mx, there, {}, &changed); });
  const Tensor values_there = to_device(values.view(), kFirst);
  // Before anything is queued, in one pass or two.
  for (const bool columnwise : {false, true})
    for (const FoldTo to : {FoldTo::rows, FoldTo::blocks_of_128}) {
      Scaling scaling = preset("mxfp8");
      scaling.columnwise = columnwise;
      QuantizedTensor into = make_folded({64, 64}, DType::f32, scaling, to, kFirst);
      const int before = device.diary().launches;
      refused(ErrorCode::invalid_argument, "changed",
              [&] { quantize_folded_into(values_there.view(), scaling, into, {}, &changed); });
      EXPECT_EQ(device.diary().launches, before) << "columnwise: " << columnwise;
    }
  const float* given = number(1.0F);
  refused(ErrorCode::invalid_argument, "given amax", [&] {
    (void)quantize_folded(values_there.view(), preset("mxfp8"), FoldTo::rows,
                          {.given_amax = given});
  });
  device.capture(true);
  refused(ErrorCode::unsupported, "capture", [&] { (void)fold(mx, FoldTo::rows); });
  device.capture(false);
}

}  // namespace
}  // namespace octavo::testing
