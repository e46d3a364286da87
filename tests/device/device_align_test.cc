// Exponent alignment of MX on a device: the CPU's bytes, a count on the host or on the device.
#include <bit>

#include "device_testing.h"

namespace octavo::testing {
namespace {

class AlignOnDevice : public OnDevice {};

TEST_F(AlignOnDevice, SameBytesAsTheCpu) {
  for (const Shape& shape : {Shape{40, 96}, Shape{33, 70}, Shape{3, 4, 200}, Shape{65}, Shape{},
                             Shape{0, 5}, Shape{5, 0}})
    for (const AlignTo to : {AlignTo::rows, AlignTo::blocks_of_128})
      for (const bool columnwise : {false, true}) {
        Scaling scaling = preset("mxfp8");
        scaling.columnwise = columnwise;
        const Tensor values =
            values_as(all_kinds_of_values(element_count(shape), 4), shape, DType::bf16);
        const Aligned wanted = align_exponents(quantize(values.view(), scaling), to);
        const Tensor there = to_device(values.view(), kFirst);
        const QuantizedTensor mx = quantize(there.view(), scaling);
        const Aligned got = align_exponents(mx, to),
                      at_once = quantize_aligned(there.view(), scaling, to);
        EXPECT_EQ(difference(to_host(got.tensor), wanted.tensor), "") << to_string(shape);
        EXPECT_EQ(difference(to_host(at_once.tensor), wanted.tensor), "") << to_string(shape);
        EXPECT_EQ(got.changed, wanted.changed);
        EXPECT_EQ(at_once.changed, wanted.changed);

        // No synchronization into existing memory.
        QuantizedTensor out = make_aligned(shape, DType::bf16, scaling, to, kFirst);
        auto* changed = number(std::int64_t{7});
        captured([&] {
          align_exponents_into(mx, out, {}, changed);
          quantize_aligned_into(there.view(), scaling, out, {}, changed);
        });
        EXPECT_EQ(fetched(changed), 7 + 2 * wanted.changed);
        EXPECT_EQ(difference(to_host(out), wanted.tensor), "");
      }
}

// Amaxes, counts and a peer's arithmetic on the way at once are those of the two calls.
TEST_F(AlignOnDevice, OptionsAtOnce) {
  Scaling scaling = preset("mxfp8");
  scaling.scale.arith = Arith::te;
  const Tensor values = values_as(all_kinds_of_values(24 * 96, 6), {24, 96}, DType::f16);
  const Tensor there = to_device(values.view(), kFirst);
  Counts counts;
  float amax = 0;
  const Aligned wanted =
      quantize_aligned(values.view(), scaling, AlignTo::rows, {.counts = &counts, .amax = &amax});
  Counts* counts_there = number(Counts{5, 5, 5});
  float* amax_there = number(7e30F);
  const Aligned got = quantize_aligned(there.view(), scaling, AlignTo::rows,
                                       {.counts = counts_there, .amax = amax_there});
  const Aligned plain = quantize_aligned(there.view(), scaling, AlignTo::rows);
  for (const Aligned* one : {&got, &plain}) {
    EXPECT_EQ(difference(to_host(one->tensor), wanted.tensor), "");
    EXPECT_EQ(one->changed, wanted.changed);
  }
  EXPECT_EQ(fetched(counts_there), counts);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fetched(amax_there)), std::bit_cast<std::uint32_t>(amax));
}

TEST_F(AlignOnDevice, WhatCannotBe) {
  const Tensor values = values_as(all_kinds_of_values(64 * 64, 4), {64, 64}, DType::f32);
  const QuantizedTensor here = quantize(values.view(), preset("mxfp8"));
  const QuantizedTensor mx = to_device(here, kFirst);
  QuantizedTensor out = make_aligned({64, 64}, DType::f32, preset("mxfp8"), AlignTo::rows);
  refused(ErrorCode::invalid_argument, "copy one to the other",
          [&] { align_exponents_into(mx, out); });
  std::int64_t changed = 0;
  QuantizedTensor there =
      make_aligned({64, 64}, DType::f32, preset("mxfp8"), AlignTo::rows, kFirst);
  refused(ErrorCode::invalid_argument, "changed",
          [&] { align_exponents_into(mx, there, {}, &changed); });
  const Tensor values_there = to_device(values.view(), kFirst);
  // Before anything is queued, in one pass or two.
  for (const bool columnwise : {false, true})
    for (const AlignTo to : {AlignTo::rows, AlignTo::blocks_of_128}) {
      Scaling scaling = preset("mxfp8");
      scaling.columnwise = columnwise;
      QuantizedTensor into = make_aligned({64, 64}, DType::f32, scaling, to, kFirst);
      const int before = device.diary().launches;
      refused(ErrorCode::invalid_argument, "changed",
              [&] { quantize_aligned_into(values_there.view(), scaling, into, {}, &changed); });
      EXPECT_EQ(device.diary().launches, before) << "columnwise: " << columnwise;
    }
  const float* given = number(1.0F);
  refused(ErrorCode::invalid_argument, "given amax", [&] {
    (void)quantize_aligned(values_there.view(), preset("mxfp8"), AlignTo::rows,
                           {.given_amax = given});
  });
  device.capture(true);
  refused(ErrorCode::unsupported, "capture", [&] { (void)align_exponents(mx, AlignTo::rows); });
  device.capture(false);
}

}  // namespace
}  // namespace octavo::testing
