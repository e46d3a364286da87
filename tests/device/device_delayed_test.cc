// Quantizers with state, all of it in the memory of the device.
#include "device_testing.h"

namespace octavo::testing {
namespace {

class StateOnDevice : public OnDevice {
 protected:
  static constexpr std::int64_t kLength = 4, kTensors = 3;

  // The same state on the host and on the device.
  struct State {
    Tensor history, inv_scale, scale, calls;

    [[nodiscard]] DelayedState views() const {
      return {history.view(), inv_scale.view(), scale.view(), calls.view()};
    }
    [[nodiscard]] State there() const {
      return {to_device(history.view(), kFirst), to_device(inv_scale.view(), kFirst),
              to_device(scale.view(), kFirst), to_device(calls.view(), kFirst)};
    }
  };
  static State make_state() {
    return {Tensor::values({kLength, kTensors}, DType::f32), Tensor::values({kTensors}, DType::f32),
            Tensor::values({kTensors}, DType::f32), Tensor::values({}, DType::f32)};
  }
  static void expect_same(const State& got, const State& wanted) {
    EXPECT_EQ(difference(to_host(got.history.view()), wanted.history), "");
    EXPECT_EQ(difference(to_host(got.inv_scale.view()), wanted.inv_scale), "");
    EXPECT_EQ(difference(to_host(got.scale.view()), wanted.scale), "");
    EXPECT_EQ(difference(to_host(got.calls.view()), wanted.calls), "");
  }
  static View element(const Tensor& tensor, std::int64_t index) {
    View view = tensor.view();
    view.data = static_cast<float*>(view.data) + index;
    view.shape = view.strides = {1};
    view.strides = {4};
    return view;
  }
};

TEST_F(StateOnDevice, StepsAsOnTheCpu) {
  const State host = make_state(), there = host.there();
  reset_delayed(host.views());
  captured([&] { reset_delayed(there.views()); });
  expect_same(there, host);
  for (int step = 0; step < 9; ++step) {
    const DelayedRule rule{.policy = static_cast<HistoryPolicy>(step % 3),
                           .margin = step % 2,
                           .interval = 1 + step % 2};
    for (std::int64_t tensor = 0; tensor < kTensors; ++tensor) {
      const Tensor values =
          values_as(all_kinds_of_values(32 * 16, static_cast<unsigned>(step * 3 + tensor), true),
                    {32, 16}, DType::f32);
      const Tensor values_there = to_device(values.view(), kFirst);
      Float8Quantizer on_host(
          {.inv_scale = element(host.inv_scale, tensor), .amax = element(host.history, tensor)}),
          on_device({.inv_scale = element(there.inv_scale, tensor),
                     .amax = element(there.history, tensor)});
      const QuantizedTensor wanted = on_host.quantize(values.view());
      QuantizedTensor got = on_device.make_empty({32, 16}, DType::f32, kFirst);
      captured([&] { on_device.quantize_into(values_there.view(), got); });
      EXPECT_EQ(difference(to_host(got), wanted), "");
    }
    update_delayed(host.views(), rule);
    captured([&] { update_delayed(there.views(), rule); });
    expect_same(there, host);
    if (HasFailure()) return;
  }
}

TEST_F(StateOnDevice, AmaxCanBeHadApart) {
  const State host = make_state();
  reset_delayed(host.views());
  const State there = host.there();
  const Tensor values = values_as(all_kinds_of_values(64, 1, true), {64}, DType::f32);
  Float8Quantizer quantizer(
      {.inv_scale = element(there.inv_scale, 1), .amax = element(there.history, 1)});
  float* apart = number(3.0F);
  (void)quantizer.quantize(to_device(values.view(), kFirst).view(), {.amax = apart});
  EXPECT_EQ(fetched(apart), amax(values.view()));
  EXPECT_EQ(to_host(there.history.view()).span<float>()[1], amax(values.view()));
  refused(ErrorCode::invalid_argument, "the input is on cpu",
          [&] { (void)quantizer.quantize(values.view()); });
}

TEST_F(StateOnDevice, StateIsOnOneDevice) {
  const State host = make_state(), there = host.there();
  DelayedState mixed = there.views();
  mixed.inv_scale = host.inv_scale.view();
  refused(ErrorCode::invalid_argument, "the history is on cuda:0 and inv_scale on cpu",
          [&] { update_delayed(mixed, {}); });
  refused(ErrorCode::invalid_argument, "inv_scale is on cuda:0 and amax on cpu", [&] {
    Float8Quantizer({.inv_scale = element(there.inv_scale, 0), .amax = element(host.history, 0)});
  });
}

TEST_F(StateOnDevice, SharedAmaxIsReducedOnTheHost) {
  const Tensor values = values_as(all_kinds_of_values(32 * 16, 2, true), {32, 16}, DType::f32);
  const Tensor there = to_device(values.view(), kFirst);
  const auto doubled = [](float amax) { return 2 * amax; };
  Float8CurrentScalingQuantizer quantizer({.reduce_amax = doubled});
  EXPECT_EQ(
      difference(to_host(quantizer.quantize(there.view())), quantizer.quantize(values.view())), "");
  for (const bool rowwise : {false, true}) {
    NVFP4Quantizer nvfp4({.rowwise = rowwise, .with_rht = true, .stochastic_rounding = true});
    EXPECT_EQ(difference(to_host(nvfp4.quantize(there.view())), nvfp4.quantize(values.view())), "");
  }
}

}  // namespace
}  // namespace octavo::testing
