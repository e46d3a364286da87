// Delayed-scaling state of a layer: what updates it, and what does not.
#include <gtest/gtest.h>

#include "octavo/nn/linear/linear.h"
#include "octavo/nn/linear/nn_testing_internal.h"

namespace octavo {
namespace {

TEST(LinearState, ScalesAndAmaxesPersist) {
  Linear layer(kLayerSize, kLayerSize);
  const DelayedScaling recipe{.amax_history_len = 16};
  const float weight_amax = amax(layer.weight().view());
  std::vector<float> seen;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = noise({kLayerSize, kLayerSize}, 0.1 + i, 2.0 + i),
                 dy = noise({kLayerSize, kLayerSize}, 0.7);
    seen.push_back(amax(x.view()));
    {
      const auto scope = autocast(recipe);
      (void)layer.forward(x);
      // The step has not ended: its amax is in row 0.
      EXPECT_EQ(layer.quantizers("scaling_fwd")->amaxes(),
                (std::vector<float>{seen.back(), weight_amax, 0}));
    }
    (void)layer.backward(dy);
    const QuantizerSet &fwd = *layer.quantizers("scaling_fwd"),
                       &bwd = *layer.quantizers("scaling_bwd");
    EXPECT_EQ(fwd.inv_scale().span<float>()[0], 448.0F / seen.back());  // the largest is the last
    EXPECT_EQ(fwd.inv_scale().span<float>()[1], 448.0F / weight_amax);
    EXPECT_EQ(fwd.inv_scale().span<float>()[2], 1.0F);  // y is not quantized
    EXPECT_EQ(bwd.inv_scale().span<float>()[0], 57344.0F / amax(dy.view()));
    EXPECT_EQ(bwd.inv_scale().span<float>()[1], 1.0F);
  }
  const auto history = layer.quantizers("scaling_fwd")->amax_history().span<float>();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(history[(13 + i) * 3], seen[i]);
}

TEST(LinearState, Mxfp8KeepsNoState) {
  Linear layer(kLayerSize, kLayerSize);
  train(layer, MXFP8BlockScaling{}, 0.1);
  const auto set = layer.quantizers("scaling_fwd");
  EXPECT_FALSE(set->has_state());
  EXPECT_EQ(set->amax_history().view().data, nullptr);
  // What came before does not matter.
  Linear fresh(kLayerSize, kLayerSize);
  const auto scope = autocast(MXFP8BlockScaling{});
  const Tensor x = noise({kLayerSize, kLayerSize}, 0.9);
  EXPECT_TRUE(same_bits(layer.forward(x), fresh.forward(x)));
}

TEST(LinearState, CalibrationGathersAndQuantizesNothing) {
  Linear layer(kLayerSize, kLayerSize), plain(layer.weight(), layer.bias());
  const Tensor x = noise({8, kLayerSize}, 0.4, 3.0), dy = noise({8, kLayerSize}, 0.6, 0.25);
  {
    const auto scope = autocast(DelayedScaling{}, {.enabled = false, .calibrating = true});
    EXPECT_TRUE(same_bits(layer.forward(x), plain.forward(x)));
  }
  EXPECT_TRUE(same_bits(layer.backward(dy), plain.backward(dy)));
  EXPECT_TRUE(same_bits(layer.weight_grad(), plain.weight_grad()));
  const auto fwd = layer.quantizers("scaling_fwd")->inv_scale().span<float>(),
             bwd = layer.quantizers("scaling_bwd")->inv_scale().span<float>();
  EXPECT_EQ(fwd[0], 448.0F / amax(x.view()));
  EXPECT_EQ(fwd[1], 448.0F / amax(layer.weight().view()));
  EXPECT_EQ(bwd[0], 57344.0F / amax(dy.view()));
  // The scales are those of the first quantized step.
  const auto scope = autocast(DelayedScaling{});
  (void)layer.forward(x);
  EXPECT_EQ(layer.saved().x_codes.columnwise.scales.span<float>()[0], 1.0F / fwd[0]);
}

TEST(LinearState, CalibrationNeedsNoBackward) {
  Linear layer(kLayerSize, kLayerSize);
  const Tensor x = noise({8, kLayerSize}, 0.4, 3.0);
  {
    const auto scope = autocast(DelayedScaling{}, {.enabled = false, .calibrating = true});
    (void)layer.forward(x, {.training = false});
  }
  EXPECT_EQ(layer.quantizers("scaling_fwd")->inv_scale().span<float>()[0], 448.0F / amax(x.view()));
}

TEST(LinearState, InferenceLeavesDelayedScalingWhereItIs) {
  Linear layer(kLayerSize, kLayerSize);
  train(layer, DelayedScaling{}, 0.1);
  const float before = layer.quantizers("scaling_fwd")->inv_scale().span<float>()[0];
  {
    const auto scope = autocast(DelayedScaling{});
    (void)layer.forward(noise({4, kLayerSize}, 0.2, 100.0), {.training = false});
  }
  EXPECT_EQ(layer.quantizers("scaling_fwd")->inv_scale().span<float>()[0], before);
  EXPECT_EQ(layer.quantizers("scaling_fwd")->amaxes(), (std::vector<float>{0, 0, 0}));
  EXPECT_FALSE(layer.saved().is_filled());
}

// A pass between two steps, or inside the scope of one, leaves no amax that the next step would
// see.
TEST(LinearState, ValidationLeavesNoTrace) {
  Linear layer(kLayerSize, kLayerSize), other(layer.weight(), layer.bias());
  const auto scales = [](const Linear& of, const char* key) {
    const auto set = of.quantizers(key);
    std::vector<float> all(set->amax_history().span<float>().begin(),
                           set->amax_history().span<float>().end());
    all.insert(all.end(), set->inv_scale().span<float>().begin(),
               set->inv_scale().span<float>().end());
    return all;
  };
  const DelayedScaling recipe{.amax_history_len = 4};
  for (int i = 0; i < 3; ++i) {
    const Tensor x = noise({4, kLayerSize}, 0.1 + i), dy = noise({4, kLayerSize}, 0.6 + i);
    for (Linear* at : {&layer, &other}) {
      {
        const auto scope = autocast(recipe);
        (void)at->forward(x);
        if (at == &layer)
          (void)layer.forward(noise({4, kLayerSize}, 0.2, 100.0), {.training = false});
      }
      (void)at->backward(dy);
    }
    const auto scope = autocast(recipe);
    (void)layer.forward(noise({4, kLayerSize}, 0.2, 100.0), {.training = false});
  }
  for (const char* key : {"scaling_fwd", "scaling_bwd"})
    EXPECT_EQ(scales(layer, key), scales(other, key)) << key;
}

// A layer of another framework in evaluation mode that runs backward all the same.
TEST(LinearState, BackwardOfInferenceMovesNothing) {
  const Tensor x = noise({4, kLayerSize}, 0.3), weight = noise({kLayerSize, kLayerSize}, 0.4);
  ModuleQuantizers quantizers;
  LinearSaved saved;
  {
    const auto scope = autocast(DelayedScaling{});
    LinearCall call{.x = x, .weight = {.values = weight}};
    call.training = false;
    call.quantizers = &quantizers;
    (void)linear_forward(call, &saved);
  }
  ASSERT_TRUE(saved.is_filled());
  EXPECT_EQ(linear_backward(noise({4, kLayerSize}, 0.5), saved).dw.shape(),
            (Shape{kLayerSize, kLayerSize}));
  for (const auto& set : {quantizers.forward(), quantizers.backward()}) {
    EXPECT_EQ(set->amaxes(), std::vector<float>(set->size(), 0.0F));
    EXPECT_EQ(set->inv_scale().span<float>()[0], 1.0F);
  }
}

TEST(LinearState, AnOutputWithoutBackwardDoesNotFreezeGradientScales) {
  Linear layer(kLayerSize, kLayerSize);
  const Tensor x = noise({kLayerSize, kLayerSize}, 0.3), dy = noise({kLayerSize, kLayerSize}, 0.4);
  LinearSaved used;
  {
    LinearSaved unused;
    {
      const auto scope = autocast(DelayedScaling{});
      (void)layer.forward(x, used);
      (void)layer.forward(x, unused);
    }
    (void)layer.backward(dy, used);
    EXPECT_EQ(layer.quantizers("scaling_bwd")->inv_scale().span<float>()[0], 1.0F);
  }
  EXPECT_EQ(layer.quantizers("scaling_bwd")->inv_scale().span<float>()[0],
            57344.0F / amax(dy.view()));
}

TEST(LinearState, AFrozenLayerInTrainingMovesItsScalesOn) {
  const Tensor x = noise({kLayerSize, kLayerSize}, 0.3),
               weight = noise({kLayerSize, kLayerSize}, 0.4);
  for (const bool training : {true, false}) {
    ModuleQuantizers quantizers;
    LinearSaved saved;
    {
      const auto scope = autocast(DelayedScaling{});
      LinearCall call{.x = x, .weight = {.values = weight}};
      call.needs = {.dx = false, .dw = false, .db = false};
      call.training = training;
      call.quantizers = &quantizers;
      (void)linear_forward(call, &saved);
    }
    EXPECT_FALSE(saved.is_filled());
    EXPECT_EQ(quantizers.forward()->inv_scale().span<float>()[0],
              training ? 448.0F / amax(x.view()) : 1.0F);
    EXPECT_EQ(quantizers.forward()->inv_scale().span<float>()[1],
              training ? 448.0F / amax(weight.view()) : 1.0F);
  }
}

// The first step ends with its backward and makes another scale of dy; the graph keeps its own.
TEST(LinearState, ASecondBackwardHasTheScaleOfTheFirst) {
  const Tensor x = noise({4, kLayerSize}, 0.3), weight = noise({kLayerSize, kLayerSize}, 0.4),
               dy = noise({4, kLayerSize}, 0.7, 0.01), later = noise({4, kLayerSize}, 0.2, 0.01);
  ModuleQuantizers quantizers;
  LinearSaved saved;
  {
    const auto scope = autocast(DelayedScaling{});
    (void)linear_forward({.x = x, .weight = {.values = weight}, .quantizers = &quantizers}, &saved);
  }
  const LinearGradients first = linear_backward(dy, saved);
  EXPECT_EQ(quantizers.backward()->inv_scale().span<float>()[0], 57344.0F / amax(dy.view()));
  std::vector<Tensor> parts;
  for (const LinearSaved::Part& part : saved.take_parts()) parts.push_back(part.tensor);
  for (int again = 0; again < 2; ++again) {
    const LinearGradients second = linear_backward(dy, saved.with_parts(parts));
    EXPECT_TRUE(same_bits(second.dx, first.dx));
    EXPECT_TRUE(same_bits(second.dw, first.dw));
    (void)linear_backward(later, saved.with_parts(parts));
  }
}

// It has no scale yet, and one would flush or saturate: the call gets the scale that a step would
// begin with, and leaves the state to training.
TEST(LinearState, InferenceAfterAnotherRecipeHasTheScaleOfItsValues) {
  const Tensor x = noise({4, kLayerSize}, 0.3, 1e-4), dy = noise({4, kLayerSize}, 0.7, 1e-6);
  const Tensor weight = noise({kLayerSize, kLayerSize}, 0.4);
  ModuleQuantizers quantizers;
  const auto forward = [&](const Recipe& recipe, const Tensor& input, bool training,
                           LinearSaved& saved) {
    const auto scope = autocast(recipe);
    LinearCall call{.x = input, .weight = {.values = weight}};
    call.training = training;
    call.quantizers = &quantizers;
    return linear_forward(call, &saved);
  };
  LinearSaved other, inference, training;
  (void)forward(MXFP8BlockScaling{}, x, true, other);
  for (const double size : {50.0, 1e-4}) {  // whatever came before
    const Tensor y = forward(DelayedScaling{}, noise({4, kLayerSize}, 0.3, size), false, inference);
    EXPECT_GT(amax(y.view()), 0.0F);
  }
  const LinearGradients seen = linear_backward(dy, inference);
  for (const auto& set : {quantizers.forward(), quantizers.backward()}) {
    EXPECT_TRUE(set->has_seeds_to_come());
    EXPECT_EQ(set->inv_scale().span<float>()[0], 1.0F);
    EXPECT_EQ(set->amaxes(), std::vector<float>(set->size(), 0.0F));
    for (const float amax : set->amax_history().span<float>()) EXPECT_EQ(amax, 0.0F);
  }
  const Tensor y = forward(DelayedScaling{}, x, false, inference);
  EXPECT_TRUE(same_bits(forward(DelayedScaling{}, x, true, training), y));
  const LinearGradients trained = linear_backward(dy, training);
  EXPECT_TRUE(same_bits(seen.dx, trained.dx));
  EXPECT_TRUE(same_bits(seen.dw, trained.dw));
  EXPECT_EQ(quantizers.forward()->inv_scale().span<float>()[0], 448.0F / amax(x.view()));
}

}  // namespace
}  // namespace octavo
