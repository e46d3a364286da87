// Casts on a device: the CPU's bytes, nothing touched by the host, clear errors.
#include <array>

#include "device_testing.h"

namespace octavo::testing {
namespace {

class ConvertOnDevice : public OnDevice {};

TEST_F(ConvertOnDevice, TensorsGoThereAndBack) {
  const Tensor values = values_as(all_kinds_of_values(7 * 33, 1), {7, 33}, DType::f32);
  {
    const Tensor there = to_device(values.view(), kSecond);
    EXPECT_EQ(there.view().device, kSecond);
    EXPECT_EQ(difference(to_host(there.view()), values), "");
    refused(ErrorCode::unsupported, "cuda:1", [&] { (void)there.span<float>(); });
    refused(ErrorCode::unsupported, "to_host", [&] { (void)there.bytes(); });
    View transposed = there.view();
    std::swap(transposed.shape[0], transposed.shape[1]);
    std::swap(transposed.strides[0], transposed.strides[1]);
    EXPECT_EQ(to_host(transposed).view().strides, transposed.strides);
    View gaps = there.view();
    gaps.shape[1] = 30;
    refused(ErrorCode::invalid_argument, "gaps", [&] { (void)to_host(gaps); });
    EXPECT_EQ(device.diary().live_lasting, 1);
  }
  EXPECT_EQ(device.diary().live_lasting, 0);
  EXPECT_EQ(to_host(to_device(Tensor::values({0, 3}, DType::f16).view(), kFirst).view()).shape(),
            (Shape{0, 3}));
}

TEST_F(ConvertOnDevice, EncodesAndDecodesAsTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor values = values_as(all_kinds_of_values(6 * 5 * 30, 2), {6, 5, 30}, dtype);
    const Tensor there = to_device(values.view(), kFirst);
    // Every second matrix, backwards along the rows: no dimensions collapse.
    const auto strided = [](View view) {
      view.shape[0] = 3;
      view.strides[0] *= 2;
      view.data = static_cast<std::byte*>(view.data) + 4 * view.strides[1];
      view.strides[1] = -view.strides[1];
      return view;
    };
    for (const Format& format : {e4m3fn, e5m2, e2m1fn, e8m0fnu, f16_format}) {
      const EncodePolicy policy{.nan_input = NanInput::max};
      const bool packed = format.bits() < 8;
      for (const bool cut : {false, true}) {
        const View from = cut ? strided(values.view()) : values.view(),
                   from_there = cut ? strided(there.view()) : there.view();
        Counts counts;
        const Tensor wanted = encode(from, format, policy, {.counts = &counts}, packed);
        Counts* counts_there = number(Counts{9, 9, 9});
        const Tensor codes = encode(from_there, format, policy, {.counts = counts_there}, packed);
        EXPECT_EQ(codes.view().device, kFirst);
        EXPECT_EQ(difference(to_host(codes.view()), wanted), "");
        EXPECT_EQ(fetched(counts_there), counts);
        EXPECT_EQ(difference(to_host(decode(codes.view(), DType::bf16).view()),
                             decode(wanted.view(), DType::bf16)),
                  "");
      }
    }
  }
}

TEST_F(ConvertOnDevice, RunsOnTheStreamAndDoesNotWait) {
  const Tensor there = to_device(Tensor::values({4, 64}, DType::f32).view(), kFirst);
  const Tensor codes = codes_on(kFirst, {4, 64}, e4m3fn);
  device.diary() = {};
  auto* stream = reinterpret_cast<void*>(0x50);
  captured([&] { encode(there.view(), codes.view(), {}, {.stream = stream}); });
  captured([&] { decode(codes.view(), there.view(), {.stream = stream}); });
  EXPECT_EQ(device.diary().launches, 2);
  EXPECT_EQ(device.diary().streams, std::set<void*>{stream});
  EXPECT_EQ(device.diary().allocations, 0);
  device.capture(true);
  refused(ErrorCode::unsupported, "captured", [&] { (void)encode(there.view(), e4m3fn); });
  refused(ErrorCode::unsupported, "captured", [&] { (void)to_host(there.view()); });
  device.capture(false);
}

TEST_F(ConvertOnDevice, NanIsCountedOnlyWhereItMustBe) {
  const Tensor values = Tensor::values({8}, DType::f32);
  for (float& x : values.span<float>()) x = 1.0F;
  const Tensor fine = to_device(values.view(), kFirst);
  values.span<float>()[3] = std::bit_cast<float>(0x7FC00000u);
  const Tensor bad = to_device(values.view(), kFirst);
  const Tensor codes = codes_on(kFirst, {8}, e2m1fn);
  encode(fine.view(), codes.view());
  refused(ErrorCode::invalid_argument, "1 NaN", [&] { encode(bad.view(), codes.view()); });
  device.capture(true);
  refused(ErrorCode::unsupported, "nan: zero or max", [&] { encode(fine.view(), codes.view()); });
  device.capture(false);
  captured([&] { encode(bad.view(), codes.view(), {.nan_input = NanInput::zero}); });
}

TEST_F(ConvertOnDevice, RefusesMemoryThatIsElsewhere) {
  const Tensor host = Tensor::values({16}, DType::f32), codes_host = Tensor::codes({16}, e4m3fn);
  const Tensor first = to_device(host.view(), kFirst), second = to_device(host.view(), kSecond);
  const Tensor codes = codes_on(kFirst, {16}, e4m3fn);
  device.diary() = {};
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  refused(kInvalid, "the input is on cpu and the output on cuda:0",
          [&] { encode(host.view(), codes.view()); });
  refused(kInvalid, "the input is on cuda:0 and the output on cpu",
          [&] { encode(first.view(), codes_host.view()); });
  refused(kInvalid, "cuda:1", [&] { encode(second.view(), codes.view()); });
  View lie = host.view();
  lie.device = kFirst;
  refused(kInvalid, "memory of the host", [&] { encode(lie, codes.view()); });
  lie = second.view();
  lie.device = kFirst;
  refused(kInvalid, "memory of cuda:1", [&] { encode(lie, codes.view()); });
  lie = first.view();
  lie.device = {DeviceKind::cuda, 2};
  refused(ErrorCode::unsupported, "no such device", [&] { (void)encode(lie, e4m3fn); });
  View crooked = first.view();
  crooked.shape = {8};
  crooked.data = static_cast<std::byte*>(crooked.data) + 2;
  refused(kInvalid, "multiple of its elements' 4 bytes", [&] { (void)encode(crooked, e4m3fn); });
  crooked = first.view();
  crooked.shape = {8};
  crooked.strides = {6};
  refused(kInvalid, "stride of 6", [&] { (void)encode(crooked, e4m3fn); });
  Counts counts;
  refused(kInvalid, "counts", [&] { encode(first.view(), codes.view(), {}, {.counts = &counts}); });
  refused(kInvalid, "expected 'fake'",
          [&] { encode(first.view(), codes.view(), {}, {.backend = &reference_backend()}); });
  refused(kInvalid, "memory on the CPU",
          [&] { encode(host.view(), codes_host.view(), {}, {.backend = device.api().kernels}); });
  EXPECT_EQ(device.diary().launches, 0);
}

TEST_F(ConvertOnDevice, WhatItDoesNotOfferIsAnError) {
  const Tensor there = to_device(Tensor::values({4}, DType::f32).view(), kFirst);
  device.offer({.name = "small", .encode = device.api().kernels->encode});
  const Tensor codes = encode(there.view(), e4m3fn);
  refused(ErrorCode::unsupported, "'small' does not offer it",
          [&] { (void)decode(codes.view(), DType::f32); });
}

TEST(WithoutDevice, SaysWhatIsMissing) {
  for (const BackendInfo& backend : backends())
    if (backend.name == "cuda" && backend.usable) GTEST_SKIP() << "there is a CUDA device here";
  View view = Tensor::values({4}, DType::f32).view();
  view.device = kFirst;
  try {
    (void)encode(view, e4m3fn);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("CUDA"), std::string_view::npos) << error.what();
  }
  EXPECT_FALSE(cuda_summary().empty());
}

}  // namespace
}  // namespace octavo::testing
