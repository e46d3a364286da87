// Quantizers on a device: the CPU's bytes, scalars that never leave, scratch that is given back.
#include "device_testing.h"

namespace octavo::testing {
namespace {

class QuantizeOnDevice : public OnDevice, public ::testing::WithParamInterface<NamedScaling> {};

TEST_P(QuantizeOnDevice, SameBytesAsTheCpu) {
  const Scaling& scaling = GetParam().scaling;
  for (const Shape& shape : {Shape{40, 96}, Shape{33, 70}, Shape{3, 4, 64}, Shape{65}, Shape{},
                             Shape{0, 5}, Shape{5, 0}}) {
    if (scaling.columnwise && shape.rank() == 3 && scaling.tile.rows > 1) continue;
    const Tensor values =
        values_as(all_kinds_of_values(element_count(shape), 4), shape, DType::bf16);
    Counts counts;
    float amax = 0;
    const QuantizedTensor wanted =
        quantize(values.view(), scaling, {.counts = &counts, .amax = &amax});
    const Tensor there = to_device(values.view(), kFirst);
    Counts* counts_there = number(Counts{5, 5, 5});
    float* amax_there = number(7e30F);
    QuantizedTensor got =
        quantize(there.view(), scaling, {.counts = counts_there, .amax = amax_there});
    EXPECT_EQ(got.device(), kFirst);
    EXPECT_EQ(difference(to_host(got), wanted), "") << to_string(shape);
    EXPECT_EQ(fetched(counts_there), counts) << to_string(shape);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(fetched(amax_there)),
              std::bit_cast<std::uint32_t>(amax));
    const bool looks_for_nan = !scaling.format.has_nan() &&
                               scaling.encode.nan_input == NanInput::error &&
                               amax_of(scaling.scale) != AmaxOf::all;
    if (!looks_for_nan) captured([&] { quantize_into(there.view(), got); });
    if (scaling.hadamard.rowwise) {
      refused(ErrorCode::unsupported, "to_host", [&] { (void)dequantize(got); });
    } else {
      EXPECT_EQ(
          difference(to_host(dequantize(got, DType::f16).view()), dequantize(wanted, DType::f16)),
          "")
          << to_string(shape);
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeOnDevice, ::testing::ValuesIn(all_kinds_of_scalings()),
                         [](const auto& case_info) {
                           std::string name = case_info.param.name;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

class ScalarsOnDevice : public OnDevice {
 protected:
  const Tensor values = values_as(all_kinds_of_values(24 * 64, 9, true), {24, 64}, DType::f32);
};

TEST_F(ScalarsOnDevice, AmaxStaysOrIsWaitedFor) {
  const Tensor there = to_device(values.view(), kFirst);
  const float wanted = amax(values.view());
  device.diary() = {};
  EXPECT_EQ(amax(there.view()), wanted);
  EXPECT_EQ(device.diary().waits, 1);
  float* result = number(1.0F);
  captured([&] { raise_amax(there.view(), result); });
  EXPECT_EQ(fetched(result), wanted);
  device.capture(true);
  refused(ErrorCode::unsupported, "raise_amax", [&] { (void)amax(there.view()); });
  device.capture(false);
}

TEST_F(ScalarsOnDevice, GivenNumbersAreReadThere) {
  const Tensor there = to_device(values.view(), kFirst);
  const float inv_scale = 0.25F, most = 1e4F;
  const QuantizeOptions given{.given_inv_scale = &inv_scale}, given_amax{.given_amax = &most};
  EXPECT_EQ(difference(to_host(quantize(there.view(), preset("fp8"),
                                        {.given_inv_scale = number(inv_scale)})),
                       quantize(values.view(), preset("fp8"), given)),
            "");
  for (const char* name : {"fp8", "nvfp4"})
    EXPECT_EQ(
        difference(to_host(quantize(there.view(), preset(name), {.given_amax = number(most)})),
                   quantize(values.view(), preset(name), given_amax)),
        "");
  const float found = amax(values.view());
  EXPECT_EQ(difference(quantize(values.view(), preset("nvfp4"), {.given_amax = &found}),
                       quantize(values.view(), preset("nvfp4"))),
            "");
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  refused(kInvalid, "given_inv_scale", [&] { (void)quantize(there.view(), preset("fp8"), given); });
  refused(kInvalid, "given_amax", [&] { (void)quantize(there.view(), preset("fp8"), given_amax); });
  Scaling weighted = preset("nvfp4");
  parse_amax_policy("wmse", weighted);
  const std::vector<float> weights(64, 1.0F);
  refused(kInvalid, "column_weights",
          [&] { (void)quantize(there.view(), weighted, {.column_weights = weights}); });
  refused(kInvalid, "whole tensor",
          [&] { (void)quantize(values.view(), preset("mxfp8"), given_amax); });
  refused(kInvalid, "leave out one", [&] {
    (void)quantize(values.view(), preset("fp8"),
                   {.given_inv_scale = &inv_scale, .given_amax = &most});
  });
}

TEST_F(ScalarsOnDevice, ScratchComesFromTheWorkspaceIfItCan) {
  const Tensor there = to_device(values.view(), kFirst);
  QuantizedTensor out = make_quantized({24, 64}, DType::f32, preset("nvfp4"), kFirst);
  device.diary() = {};
  quantize_into(there.view(), out);
  EXPECT_EQ(device.diary().allocations, 1);
  auto* memory = static_cast<std::byte*>(device.memory(1024));
  quantize_into(there.view(), out, {.workspace = {memory, 1024}});
  EXPECT_EQ(device.diary().allocations, 1);
  EXPECT_EQ(device.diary().workspace, 768u);
  quantize_into(there.view(), out, {.workspace = {memory, 16}});
  EXPECT_EQ(device.diary().allocations, 2);
  EXPECT_EQ(difference(to_host(out), quantize(values.view(), preset("nvfp4"))), "");
  // One pass over one matrix needs no scratch at all.
  QuantizedTensor plain = make_quantized({24, 64}, DType::f32, preset("mxfp8"), kFirst);
  device.diary() = {};
  quantize_into(there.view(), plain);
  EXPECT_EQ(device.diary().allocations, 0);
  EXPECT_EQ(device.diary().launches, 1);
}

TEST_F(ScalarsOnDevice, ScratchIsReleasedWhenSomethingThrows) {
  const Tensor there = to_device(values.view(), kFirst);
  Scaling scaling = preset("fp8");
  scaling.format = e2m1fn;
  scaling.scale.non_finite = NonFinite::saturate;
  QuantizedTensor out = make_quantized({24, 64}, DType::f32, scaling, kFirst);
  device.diary() = {};
  quantize_into(there.view(), out);
  EXPECT_EQ(device.diary().waits, 1) << "NaN is an error, so it is looked for";
  const Tensor bad = Tensor::values({24, 64}, DType::f32);
  for (float& x : bad.span<float>()) x = std::bit_cast<float>(0x7FC00000u);
  const Tensor bad_there = to_device(bad.view(), kFirst);
  refused(ErrorCode::invalid_argument, "has NaN", [&] { quantize_into(bad_there.view(), out); });
  device.capture(true);
  refused(ErrorCode::unsupported, "non_finite: poison", [&] { quantize_into(there.view(), out); });
  device.capture(false);
}

// One scale for several matrices is searched for on the host only; tiles of them are not.
TEST_F(ScalarsOnDevice, SearchOverSeveralMatricesIsRefused) {
  const Tensor there = to_device(values.view(), kFirst);
  View apart = there.view();  // 3 of 4 times 5 of 6 rows
  apart.shape = {3, 5, 64};
  apart.strides = {6 * 256, 256, 4};
  for (const AmaxPolicy policy : {AmaxPolicy::mse, AmaxPolicy::percentile}) {
    Scaling scaling = preset("fp8");
    scaling.policy = policy;
    refused(ErrorCode::unsupported, "make it contiguous", [&] { (void)quantize(apart, scaling); });
    scaling.tile = {1, 32};
    EXPECT_EQ(quantize(apart, scaling).device(), kFirst);
  }
}

TEST_F(ScalarsOnDevice, AllPartsAreOnOneDevice) {
  const Tensor there = to_device(values.view(), kFirst);
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  QuantizedTensor host = quantize(values.view(), preset("mxfp8"));
  refused(kInvalid, "the input is on cuda:0 and codes on cpu",
          [&] { quantize_into(there.view(), host); });
  QuantizedTensor mixed = to_device(host, kFirst);
  mixed.rowwise.scales = to_device(host.rowwise.scales.view(), kSecond);
  refused(kInvalid, "scales on cuda:1", [&] { quantize_into(there.view(), mixed); });
  refused(kInvalid, "scales on cuda:1", [&] { (void)dequantize(mixed); });
  refused(kInvalid, "scales on cuda:1", [&] {
    (void)quantized_from({24, 64}, preset("mxfp8"), mixed.rowwise.codes, mixed.rowwise.scales);
  });
  EXPECT_EQ(difference(to_host(requantize(to_device(host, kSecond), preset("fp8-block"))),
                       requantize(host, preset("fp8-block"))),
            "");
  refused(ErrorCode::unsupported, "to_host",
          [&] { (void)measure_error(there.view(), to_device(host, kFirst)); });
  refused(ErrorCode::unsupported, "to_host", [&] {
    (void)to_layout(to_device(host, kFirst).rowwise.scales, ScaleLayout::swizzled_128x4);
  });
}

TEST_F(ScalarsOnDevice, NegativeScalesAreFound) {
  const QuantizedTensor host = quantize(values.view(), preset("fp8-1x128"));
  QuantizedTensor there = to_device(host, kFirst);
  check_scales(there);
  host.rowwise.scales.span<float>()[5] = -1.0F;
  there = to_device(host, kFirst);
  refused(ErrorCode::invalid_argument, "tile (5, 0)", [&] { check_scales(there); });
  device.capture(true);
  refused(ErrorCode::unsupported, "capture", [&] { check_scales(there); });
  device.capture(false);
  const QuantizedCopy& given = there.rowwise;
  refused(ErrorCode::invalid_argument, "tile (5, 0)",
          [&] { (void)quantized_from(there.shape, there.scaling, given.codes, given.scales); });
  captured([&] {  // scales are not validated, so nothing synchronizes
    (void)quantized_from(there.shape, there.scaling, given.codes, given.scales, {}, nullptr, false);
  });
}

TEST_F(ScalarsOnDevice, Fp8QuantizeKeepsTheOrder) {
  View transposed = values.view();
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  const Tensor there = to_device(transposed, kFirst);
  const Fp8Quantized got = fp8_quantize(there.view()), wanted = fp8_quantize(transposed);
  EXPECT_EQ(difference(to_host(got.codes.view()), wanted.codes), "");
  EXPECT_EQ(difference(to_host(got.scale.view()), wanted.scale), "");
}

}  // namespace
}  // namespace octavo::testing
