// Recomputed forward (activation checkpointing) under delayed scaling.
#include <gtest/gtest.h>

#include "octavo/nn/linear/linear_internal.h"
#include "octavo/nn/linear/nn_testing_internal.h"

namespace octavo {
namespace {

struct Layer {
  ModuleQuantizers quantizers{};
  Tensor w = noise({24, 40}, 0.5);

  Tensor forward(const Tensor& x, ForwardScales* scales, LinearSaved* saved,
                 bool calibrating = false) {
    const auto scope = autocast(DelayedScaling{.amax_history_len = 4},
                                {.enabled = !calibrating, .calibrating = calibrating});
    return linear_forward(
        {.x = x, .weight = {.values = w}, .quantizers = &quantizers, .scales = scales}, saved);
  }
  [[nodiscard]] std::vector<float> state() const {
    const QuantizerSet& set = *quantizers.forward();
    std::vector<float> numbers;
    for (const Tensor& tensor : {set.amax_history(), set.inv_scale(), set.scale()})
      numbers.insert(numbers.end(), tensor.span<float>().begin(), tensor.span<float>().end());
    return numbers;
  }
};

TEST(LinearAgain, HasTheScalesOfTheFirstForwardAndLeavesStateAlone) {
  const Tensor x = noise({48, 40}, 0.3, 3.0), dy = noise({48, 24}, 0.7);
  Layer layer;
  LinearSaved first_saved, again_saved, later_saved;
  ForwardScales scales;
  (void)layer.forward(noise({48, 40}, 0.4, 0.01), nullptr, &first_saved);  // scales that are not 1
  const Tensor y = layer.forward(x, &scales, &first_saved);
  EXPECT_EQ(scales.inv_scale.size(), 3u);
  (void)layer.forward(noise({48, 40}, 0.4, 100.0), nullptr, &later_saved);  // steps in between
  const std::vector<float> before = layer.state();

  scales.again = true;
  for (int time = 0; time < 2; ++time) {  // every backward has one of its own
    EXPECT_TRUE(same_bits(layer.forward(x, &scales, &again_saved), y));
    EXPECT_EQ(layer.state(), before);
  }
  // Without the end of their step, which would give the second one other scales for dy.
  const LinearGradients first = linear_gradients(dy, first_saved, {}),
                        again = linear_gradients(dy, again_saved, {});
  EXPECT_TRUE(same_bits(first.dx, again.dx));
  EXPECT_TRUE(same_bits(first.dw, again.dw));
  // Without them it is another product.
  EXPECT_FALSE(same_bits(layer.forward(x, nullptr, &later_saved), y));
}

TEST(LinearAgain, CalibrationCountsOnce) {
  const Tensor x = noise({48, 40}, 0.3, 3.0);
  Layer layer;
  LinearSaved saved;
  ForwardScales scales;
  (void)layer.forward(x, &scales, &saved, true);
  const std::vector<float> before = layer.state();
  scales.again = true;
  (void)layer.forward(x, &scales, &saved, true);
  EXPECT_EQ(layer.state(), before);
}

TEST(LinearAgain, ScalesOfAnotherModuleAreNamed) {
  Layer layer;
  LinearSaved saved;
  ForwardScales scales{.inv_scale = {1.0F, 2.0F}, .again = true};
  const auto [code, message] = error_of([&] {
    (void)layer.forward(noise({8, 40}, 0.3), &scales, &saved);
  });
  EXPECT_EQ(code, ErrorCode::invalid_argument);
  EXPECT_EQ(message, "[QuantizerSet] got 2 scales of an earlier forward for 3 slots");
}

}  // namespace
}  // namespace octavo
