// Scopes belong to threads, and a backward may run on another one.
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "octavo/nn/linear/linear.h"
#include "octavo/nn/linear/nn_testing_internal.h"

namespace octavo {
namespace {

constexpr std::int64_t kSize = 32;

TEST(LinearThread, TwoThreadsWithTwoRecipesDoNotMeet) {
  std::latch both_inside(2), both_ran(2);
  const auto work = [&](const Recipe& recipe, std::string_view quantizer) {
    Linear layer(kSize, kSize);
    const auto scope = autocast(recipe);
    both_inside.arrive_and_wait();
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(*current_autocast().recipe, recipe);
      (void)layer.forward(noise({kSize, kSize}, 0.1 * i));
      (void)layer.backward(noise({kSize, kSize}, 0.2 * i));
    }
    both_ran.arrive_and_wait();
    EXPECT_EQ(layer.quantizers("scaling_fwd")->at(0).name(), quantizer);
    EXPECT_EQ(*current_autocast().recipe, recipe);
  };
  std::thread one(work, Recipe(DelayedScaling{}), "Float8Quantizer");
  std::thread two(work, Recipe(MXFP8BlockScaling{}), "MXFP8Quantizer");
  one.join();
  two.join();
  EXPECT_FALSE(current_autocast().enabled);
}

TEST(LinearThread, BackwardOnAnotherThreadUsesTheRecipeOfItsForward) {
  for (const Recipe& recipe : {Recipe(DelayedScaling{}), Recipe(MXFP8BlockScaling{})}) {
    Linear here(kSize, kSize), there(here.weight(), here.bias());
    const Tensor x = noise({kSize, kSize}, 0.3), dy = noise({kSize, kSize}, 0.4);
    {
      const auto scope = autocast(recipe);
      (void)here.forward(x);
      (void)there.forward(x);
    }
    const Tensor dx = here.backward(dy);
    Tensor other;
    std::thread([&] {
      const auto scope = autocast(Float8BlockScaling{});  // which has no effect
      other = there.backward(dy);
    }).join();
    EXPECT_TRUE(same_bits(dx, other));
    EXPECT_TRUE(same_bits(here.weight_grad(), there.weight_grad()));
    EXPECT_EQ(there.quantizers("scaling_bwd")->recipe(), recipe);
    if (recipe.delayed()) {
      EXPECT_EQ(there.quantizers("scaling_bwd")->inv_scale().span<float>()[0],
                57344.0F / amax(dy.view()));
    }
  }
}

// Recipes without state: what a layer computes depends on nothing that was before.
TEST(LinearThread, OneLayerInTwoThreadsUnderTwoRecipes) {
  Linear shared(kSize, kSize);
  const Tensor x = noise({kSize, kSize}, 0.3), dy = noise({kSize, kSize}, 0.4);
  std::latch both_inside(2);
  const auto work = [&](const Recipe& recipe) {
    const auto scope = autocast(recipe);
    Linear own(shared.weight(), shared.bias());
    const Tensor y = own.forward(x), dx = own.backward(dy);
    both_inside.arrive_and_wait();
    int wrong = 0;
    for (int i = 0; i < 400; ++i) {
      LinearSaved saved;
      LinearForward options;
      if (i % 3 > 0) options.is_first_microbatch = i % 3 == 1;
      wrong += same_bits(shared.forward(x, saved, options), y) ? 0 : 1;
      wrong += same_bits(shared.backward(dy, saved), dx) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << to_string(recipe);
  };
  std::thread one(work, Recipe(Float8CurrentScaling{})), two(work, Recipe(MXFP8BlockScaling{}));
  one.join();
  two.join();
}

TEST(LinearThread, OneThreadTrainsAndAnotherEvaluates) {
  Linear shared(kSize, kSize);
  const Tensor x = noise({kSize, kSize}, 0.3), dy = noise({kSize, kSize}, 0.4);
  std::latch both_inside(2);
  const auto work = [&](bool trains) {
    const Recipe recipe = trains ? Recipe(DelayedScaling{}) : Recipe(MXFP8BlockScaling{});
    const auto run = [&](Linear& layer) {
      LinearSaved saved;
      const auto scope = autocast(recipe);
      Tensor y = layer.forward(x, saved, {.training = trains});
      if (trains) (void)layer.backward(dy, saved);
      return y;
    };
    Linear own(shared.weight(), shared.bias());
    const Tensor y = run(own);
    both_inside.arrive_and_wait();
    int wrong = 0;
    for (int i = 0; i < 400; ++i)
      wrong += same_bits(run(shared), y) || trains ? 0 : 1;  // training moves its scales on
    EXPECT_EQ(wrong, 0);
  };
  std::thread one(work, true), two(work, false);
  one.join();
  two.join();
  LinearSaved saved;
  {
    const auto scope = autocast(DelayedScaling{});
    (void)shared.forward(x, saved);
  }
  EXPECT_EQ(shared.quantizers("scaling_fwd")->inv_scale().span<float>()[0],
            448.0F / amax(x.view()));
}

// Products of ones are exact in any order.
TEST(LinearThread, NoGradientIsLost) {
  const Tensor ones = Tensor::values({kSize, kSize}, DType::f32);
  for (float& value : ones.span<float>()) value = 1;
  Linear shared(kSize, kSize);
  constexpr int kTimes = 300;
  std::latch both_inside(2);
  const auto work = [&] {
    both_inside.arrive_and_wait();
    for (int i = 0; i < kTimes; ++i) {
      LinearSaved saved;
      (void)shared.forward(ones, saved);
      (void)shared.backward(ones, saved);
    }
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
  for (const float value : shared.weight_grad().span<float>())
    ASSERT_EQ(value, static_cast<float>(2 * kTimes * kSize));
  for (const float value : shared.bias_grad().span<float>())
    ASSERT_EQ(value, static_cast<float>(2 * kTimes * kSize));
}

TEST(LinearThread, AScopeEndsOnItsOwnThread) {
  Autocast scope{DelayedScaling{}};
  std::thread([&] { EXPECT_THROW(scope.leave(), Error); }).join();
  EXPECT_TRUE(current_autocast().enabled);
}

}  // namespace
}  // namespace octavo
