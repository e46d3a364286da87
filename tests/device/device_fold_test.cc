// MX with common exponents on a device: the CPU's bytes, a number that is waited for or stays.
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

TEST_F(FoldOnDevice, WhatCannotBe) {
  const Tensor values = values_as(all_kinds_of_values(64 * 64, 4), {64, 64}, DType::f32);
  const QuantizedTensor here = quantize(values.view(), preset("mxfp8"));
  const QuantizedTensor mx = to_device(here, kFirst);
  QuantizedTensor out = make_folded({64, 64}, DType::f32, preset("mxfp8"), FoldTo::rows);
  refused(ErrorCode::invalid_argument, "copy one to the other", [&] { fold_into(mx, out); });
  std::int64_t changed = 0;
  QuantizedTensor there = make_folded({64, 64}, DType::f32, preset("mxfp8"), FoldTo::rows, kFirst);
  refused(ErrorCode::invalid_argument, "changed", [&] { fold_into(mx, there, {}, &changed); });
  device.capture(true);
  refused(ErrorCode::unsupported, "capture", [&] { (void)fold(mx, FoldTo::rows); });
  device.capture(false);
}

}  // namespace
}  // namespace octavo::testing
