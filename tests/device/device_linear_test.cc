// A layer on a device: the bytes of the same layer on the host, and state that lies there too.
#include "device_testing.h"

namespace octavo::testing {
namespace {

class LinearOnDevice : public OnDevice {
 protected:
  static constexpr std::int64_t kRows = 20, kIn = 70, kOut = 33;
  // No NaN and no Inf: their sums need not have the same bits.
  static Tensor waves(const Shape& shape, double step) {
    const Tensor tensor = Tensor::values(shape, DType::f32);
    double at = 0;
    for (float& value : tensor.span<float>()) value = static_cast<float>(std::sin(at += step));
    return tensor;
  }
  const Tensor x = waves({kRows, kIn}, 0.3), w = waves({kOut, kIn}, 0.7), bias = waves({kOut}, 1.1),
               dy = waves({kRows, kOut}, 0.9);
  const Tensor x_there = to_device(x.view(), kFirst), w_there = to_device(w.view(), kFirst),
               bias_there = to_device(bias.view(), kFirst), dy_there = to_device(dy.view(), kFirst);
};

TEST_F(LinearOnDevice, BytesOfTheHost) {
  for (const Recipe& recipe :
       {Recipe(DelayedScaling{}), Recipe(Float8CurrentScaling{}), Recipe(Float8BlockScaling{}),
        Recipe(MXFP8BlockScaling{}), Recipe(NVFP4BlockScaling{})}) {
    SCOPED_TRACE(recipe.name());
    Linear here(w, bias, {.run = {.backend = &reference_backend()}}), there(w_there, bias_there);
    for (int step = 0; step < 2; ++step) {
      Tensor y, y_there;
      {
        const auto scope = autocast(recipe);
        y = here.forward(x);
        y_there = there.forward(x_there);
      }
      EXPECT_EQ(y_there.view().device, kFirst);
      EXPECT_EQ(difference(to_host(y_there.view()), y), "");
      EXPECT_EQ(difference(to_host(there.backward(dy_there).view()), here.backward(dy)), "");
      EXPECT_EQ(difference(to_host(there.weight_grad().view()), here.weight_grad()), "");
      EXPECT_EQ(difference(to_host(there.bias_grad().view()), here.bias_grad()), "");
    }
    if (!recipe.delayed()) continue;
    for (const char* key : {"scaling_fwd", "scaling_bwd"}) {
      const QuantizerSet &a = *here.quantizers(key), &b = *there.quantizers(key);
      EXPECT_EQ(b.amax_history().view().device, kFirst);
      EXPECT_EQ(difference(to_host(b.amax_history().view()), a.amax_history()), "");
      EXPECT_EQ(difference(to_host(b.inv_scale().view()), a.inv_scale()), "");
    }
  }
}

TEST_F(LinearOnDevice, TheHostMultipliesWhereTheDeviceDoesNot) {
  Kernels without = *device.api().kernels;
  without.gemm = nullptr;
  device.offer(without);
  std::vector<std::string> notes;
  Log log([&](std::string_view note) { notes.emplace_back(note); });
  for (const bool enabled : {true, false}) {
    Linear here(w, bias), there(w_there, bias_there, {.run = {.log = &log}});
    for (int step = 0; step < 2; ++step) {  // the second adds to the gradients of the first
      Tensor y, y_there;
      {
        const auto scope = autocast(MXFP8BlockScaling{}, {.enabled = enabled});
        y = here.forward(x);
        y_there = there.forward(x_there);
      }
      EXPECT_EQ(y_there.view().device, kFirst);
      EXPECT_EQ(difference(to_host(y_there.view()), y), "");
      EXPECT_EQ(difference(to_host(there.backward(dy_there).view()), here.backward(dy)), "");
      EXPECT_EQ(difference(to_host(there.weight_grad().view()), here.weight_grad()), "");
      EXPECT_EQ(difference(to_host(there.bias_grad().view()), here.bias_grad()), "");
    }
  }
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("cuda:0 does not offer a product"), std::string::npos) << notes[0];
}

// All that grows comes from the caller: then a step of training can be captured, gradients of the
// bias included, also those that are added to others.
TEST_F(LinearOnDevice, BackwardIsCaptured) {
  const auto make = [&](const View& like) {
    View view = like;
    const std::int64_t bytes = dense_bytes(like.shape, like.dtype, like.format, like.packed);
    view.device = kFirst;
    view.data = device.memory(static_cast<std::size_t>(bytes));
    return Tensor::adopt(view, std::shared_ptr<void>(view.data, [](void*) {}));
  };
  for (const bool enabled : {true, false}) {
    Linear here(w, bias, {.run = {.backend = &reference_backend()}}),
        there(w_there, bias_there, {.run = {.make = make}});
    for (int step = 0; step < 2; ++step) {
      {
        const auto scope = autocast(MXFP8BlockScaling{}, {.enabled = enabled});
        (void)here.forward(x);
        (void)there.forward(x_there);
      }
      (void)here.backward(dy);
      captured([&] { (void)there.backward(dy_there); });
      EXPECT_EQ(difference(to_host(there.bias_grad().view()), here.bias_grad()), "");
    }
  }
}

// A failing device is not a missing kernel: a fallback to the host would hide the failure.
TEST_F(LinearOnDevice, AFailureIsTold) {
  Kernels hungry = *device.api().kernels;
  hungry.gemm_workspace = [](const Exec&, const GemmJob&) { return std::int64_t{1} << 50; };
  device.offer(hungry);
  Linear there(w_there, bias_there);
  refused(ErrorCode::device, "out of memory", [&] { (void)there.forward(x_there); });
  Kernels failing = *device.api().kernels;
  failing.gemm_workspace = nullptr;
  failing.gemm = [](const Exec&, const GemmJob&) {
    throw Error(ErrorCode::unsupported, "[cuda] the driver has no tensor maps");
  };
  device.offer(failing);
  refused(ErrorCode::unsupported, "tensor maps", [&] { (void)there.forward(x_there); });
}

TEST_F(LinearOnDevice, AmaxesOfAGroup) {
  Linear there(w_there, bias_there);
  const auto group = std::make_shared<const Reducer>([](std::span<float> numbers) {
    for (float& number : numbers) number = 7.0F;
  });
  {
    const auto scope = autocast(DelayedScaling{.amax_history_len = 2}, {.amax_group = group});
    (void)there.forward(x_there);
  }
  const Tensor scales = to_host(there.quantizers("scaling_fwd")->inv_scale().view());
  for (const float inv_scale : scales.span<float>()) EXPECT_EQ(inv_scale, 64.0F);
}

// The default stream has no order with streams that do not block it, as torch's do not.
TEST_F(LinearOnDevice, EverythingIsOnTheStreamOfTheCall) {
  int place = 0;
  void* const stream = &place;
  const LinearRun run{.stream = stream};
  Linear there(w_there, bias_there, {.run = run});
  ModuleQuantizers quantizers({.make = [](const View& like) {
    return values_on(kFirst, like.shape, like.dtype, nullptr);
  }});
  device.diary().streams.clear();
  for (const Recipe& recipe :
       {Recipe(DelayedScaling{.interval = 2}), Recipe(DelayedScaling{.margin = 1}),
        Recipe(MXFP8BlockScaling{}), Recipe(DelayedScaling{.amax_history_len = 4})}) {
    {
      const auto scope = autocast(recipe);
      (void)there.forward(x_there);
    }
    (void)there.backward(dy_there);
    const auto codes = first_quantized_weight(quantizers, recipe, w_there.view(), run);
    (void)switched_weight(quantizers, Float8CurrentScaling{}, *codes, DType::f32, run);
  }
  EXPECT_EQ(device.diary().streams, std::set<void*>{stream});
}

TEST_F(LinearOnDevice, ASecondBackwardHasTheScaleOfTheFirst) {
  Linear there(w_there, bias_there);
  LinearSaved saved;
  {
    const auto scope = autocast(DelayedScaling{});
    (void)there.forward(x_there, saved);
  }
  const Tensor first = to_host(linear_backward(dy_there, saved).dx.view());
  EXPECT_EQ(difference(to_host(linear_backward(dy_there, saved).dx.view()), first), "");
}

// Functions of a recipe run on the host: that is told before anything is computed.
TEST_F(LinearOnDevice, FunctionsAreRefusedBeforeTheStep) {
  Linear there(w_there, bias_there);
  const auto newest = std::make_shared<const AmaxAlgorithm>(
      [](std::span<const float> window) { return window.back(); });
  const auto scope = autocast(DelayedScaling{.amax_compute_function = newest});
  refused(ErrorCode::unsupported, "run on the host", [&] { (void)there.forward(x_there); });
}

TEST_F(LinearOnDevice, EverythingIsOnOneDevice) {
  Linear there(w_there, bias_there), here(w, bias);
  refused(ErrorCode::invalid_argument, "x is on cpu and the weight on cuda:0",
          [&] { (void)there.forward(x); });
  refused(ErrorCode::invalid_argument, "x is on cuda:0 and the weight on cpu",
          [&] { (void)here.forward(x_there); });
  (void)there.forward(x_there);
  refused(ErrorCode::invalid_argument, "on cpu", [&] { (void)there.backward(dy); });
}

TEST_F(LinearOnDevice, ParametersAreMadeThere) {
  const Linear here(kIn, kOut, {.seed = 3}), there(kIn, kOut, {.device = kFirst, .seed = 3});
  EXPECT_EQ(there.weight().view().device, kFirst);
  EXPECT_EQ(difference(to_host(there.weight().view()), here.weight()), "");
  const auto init = quantized_model_init(DelayedScaling{});
  const Linear codes(kIn, kOut, {.seed = 3}), codes_there(kIn, kOut, {.device = kFirst, .seed = 3});
  EXPECT_EQ(difference(to_host(*codes_there.quantized_weight()), *codes.quantized_weight()), "");
}

}  // namespace
}  // namespace octavo::testing
