// Norms and activations on a device: the reference's bytes, as values and quantized.
#include "device_testing.h"

namespace octavo::testing {
namespace {

class ProduceOnDevice : public OnDevice {
 protected:
  static constexpr std::int64_t kRows = 40, kCols = 96;
  const Tensor x =
      values_as(all_kinds_of_values(kRows * kCols, 3, true), {kRows, kCols}, DType::bf16);
  const Tensor weight = values_as(all_kinds_of_values(kCols, 5, true), {kCols}, DType::f32);
  const Tensor x_there = to_device(x.view(), kFirst),
               weight_there = to_device(weight.view(), kFirst);
  const Tensor mean = Tensor::values({kRows}, DType::f32),
               mean_there = values_on(kFirst, {kRows}, DType::f32);
};

TEST_F(ProduceOnDevice, ValuesOfTheReference) {
  const ProduceOptions reference{.backend = &reference_backend()};
  const Tensor wanted =
      layer_norm(x.view(), {.weight = weight.view(), .mean = mean.view()}, reference);
  const Tensor got =
      layer_norm(x_there.view(), {.weight = weight_there.view(), .mean = mean_there.view()});
  EXPECT_EQ(got.view().device, kFirst);
  EXPECT_EQ(difference(to_host(got.view()), wanted), "");
  EXPECT_EQ(difference(to_host(mean_there.view()), mean), "");
  EXPECT_EQ(difference(to_host(swiglu(x_there.view()).view()), swiglu(x.view(), reference)), "");
  const Produced values = produced(x_there.view(), RmsNorm{.weight = weight_there.view()});
  captured([&] { produce_into(values, got.view()); });
}

TEST_F(ProduceOnDevice, QuantizedFromStagingMemoryOfTheDevice) {
  const QuantizeOptions reference{.backend = &reference_backend()};
  for (const char* name : {"fp8", "mxfp8", "nvfp4", "fp8-block"}) {
    Scaling scaling = preset(name);
    scaling.columnwise = true;
    const QuantizedTensor wanted =
        quantize(produced(x.view(), LayerNorm{.weight = weight.view()}), scaling, reference);
    const Produced values = produced(x_there.view(), LayerNorm{.weight = weight_there.view()});
    QuantizedTensor got = quantize(values, scaling);
    EXPECT_EQ(difference(to_host(got), wanted), "") << name;
    captured([&] { quantize_into(values, got); });
    EXPECT_EQ(difference(to_host(got), wanted), "") << name;
  }
}

TEST_F(ProduceOnDevice, EverythingIsOnOneDevice) {
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  refused(kInvalid, "the input is on cuda:0 and the weight on cpu",
          [&] { (void)produced(x_there.view(), RmsNorm{.weight = weight.view()}); });
  refused(kInvalid, "the input is on cuda:0 and mean on cpu",
          [&] { (void)produced(x_there.view(), LayerNorm{.mean = mean.view()}); });
  const Tensor out = Tensor::values({kRows, kCols}, DType::f32);
  refused(kInvalid, "the output on cpu",
          [&] { produce_into(produced(x_there.view(), Activation{}), out.view()); });
  Kernels without = *device.api().kernels;
  without.produce = nullptr;
  device.offer(without);
  refused(ErrorCode::unsupported, "does not offer it", [&] { (void)relu(x_there.view()); });
  refused(ErrorCode::unsupported, "does not offer it",
          [&] { (void)quantize(produced(x_there.view(), Activation{}), preset("mxfp8")); });
}

}  // namespace
}  // namespace octavo::testing
