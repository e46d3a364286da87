#include "octavo/recipe/autocast.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

std::shared_ptr<QuantizerSet> delayed_set() {
  static const std::vector<TensorRole> kRoles{TensorRole::input};
  return std::make_shared<QuantizerSet>(DelayedScaling{.amax_history_len = 2},
                                        QuantizerSetOptions{.roles = kRoles});
}

float inv_scale(const QuantizerSet& set) { return set.inv_scale().span<float>()[0]; }

// What a module does in its forward.
void run(const std::shared_ptr<QuantizerSet>& set, float amax) {
  current_autocast().region->runs_forward({set});
  set->set_amaxes(std::vector<float>{amax});
}

TEST(Autocast, NestsAndRestores) {
  EXPECT_FALSE(current_autocast().enabled);
  EXPECT_EQ(current_autocast().recipe, nullptr);
  {
    const auto outer = autocast(DelayedScaling{});
    EXPECT_TRUE(current_autocast().recipe->delayed());
    const auto region = current_autocast().region;
    {
      const auto inner = autocast(MXFP8BlockScaling{});
      EXPECT_TRUE(current_autocast().recipe->mxfp8());
      EXPECT_EQ(current_autocast().region, region);
      const auto off = autocast(MXFP8BlockScaling{}, {.enabled = false});
      EXPECT_FALSE(current_autocast().enabled);
    }
    EXPECT_TRUE(current_autocast().enabled);
    EXPECT_TRUE(current_autocast().recipe->delayed());
  }
  EXPECT_EQ(current_autocast().recipe, nullptr);
  const auto plain = autocast();
  EXPECT_TRUE(current_autocast().recipe->mxfp8());
}

TEST(Autocast, EnabledIsNotCalibrating) {
  const auto both = autocast(DelayedScaling{}, {.enabled = true, .calibrating = true});
  EXPECT_TRUE(current_autocast().enabled);
  EXPECT_FALSE(current_autocast().calibrating);
  const auto watching = autocast(DelayedScaling{}, {.enabled = false, .calibrating = true});
  EXPECT_TRUE(current_autocast().calibrating);
}

TEST(Autocast, TheOutermostEndMovesDelayedScalingOn) {
  const auto set = delayed_set();
  {
    const auto outer = autocast(DelayedScaling{});
    {
      const auto inner = autocast(DelayedScaling{});
      run(set, 7);
    }
    EXPECT_EQ(inv_scale(*set), 1.0F);
    run(set, 14);  // a second time in the same step
  }
  EXPECT_EQ(inv_scale(*set), 32.0F);
  EXPECT_EQ(set->amax_history().span<float>()[1], 14.0F);
}

TEST(Autocast, AnExceptionLeavesNothingBehind) {
  const auto set = delayed_set();
  try {
    const auto outer = autocast(DelayedScaling{});
    const auto inner = autocast(MXFP8BlockScaling{});
    run(set, 7);
    throw std::runtime_error("in the model");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "in the model");
  }
  EXPECT_FALSE(current_autocast().enabled);
  EXPECT_EQ(current_autocast().recipe, nullptr);
  EXPECT_EQ(current_autocast().region, nullptr);
  EXPECT_EQ(inv_scale(*set), 1.0F);
  EXPECT_EQ(set->amaxes(), (std::vector<float>{0}));
  {
    const auto again = autocast(DelayedScaling{});
    run(set, 14);
  }
  EXPECT_EQ(inv_scale(*set), 32.0F);
}

TEST(Autocast, ARecipeThatCannotBeEntersNothing) {
  EXPECT_THROW((void)autocast(MXFP8BlockScaling{.fp8_format = RecipeFormat::E5M2}), Error);
  EXPECT_THROW((void)autocast(DelayedScaling{}, {.amax_group = std::make_shared<const Reducer>()}),
               Error);
  EXPECT_EQ(current_autocast().recipe, nullptr);
}

TEST(Autocast, WhatAReducerThrowsComesOutAndTheScopeIsClosed) {
  const auto set = delayed_set();
  const auto broken = std::make_shared<const Reducer>(
      [](std::span<float>) { throw std::runtime_error("connection lost"); });
  const auto step = [&] {
    const auto scope = autocast(DelayedScaling{}, {.amax_group = broken});
    const AutocastState at = current_autocast();
    at.region->runs_forward({set, at.amax_group});
    set->set_amaxes(std::vector<float>{7});
  };
  EXPECT_THROW(step(), std::runtime_error);
  EXPECT_EQ(current_autocast().region, nullptr);
  EXPECT_EQ(inv_scale(*set), 1.0F);
}

TEST(Autocast, ScopesThatEndOutOfOrderAreNamed) {
  auto outer = std::make_unique<Autocast>(DelayedScaling{});
  auto inner = std::make_unique<Autocast>(MXFP8BlockScaling{});
  EXPECT_THROW(outer->leave(), Error);
  EXPECT_TRUE(current_autocast().recipe->mxfp8());  // as it was
  inner->leave();
  inner->leave();  // a second time is nothing
  EXPECT_TRUE(current_autocast().recipe->delayed());
  outer->leave();
  EXPECT_EQ(current_autocast().recipe, nullptr);
}

TEST(Autocast, AScopeLeftLaterEndsWithThoseInsideOfIt) {
  const auto set = delayed_set();
  auto outer = std::make_unique<Autocast>(DelayedScaling{});
  run(set, 7);
  auto inner = std::make_unique<Autocast>(MXFP8BlockScaling{});
  EXPECT_THROW(outer->leave(), Error);
  outer->leave_later();
  outer.reset();
  EXPECT_TRUE(current_autocast().recipe->mxfp8());
  EXPECT_EQ(inv_scale(*set), 1.0F);
  inner->leave();
  EXPECT_EQ(current_autocast().recipe, nullptr);
  EXPECT_EQ(inv_scale(*set), 64.0F);  // the step of both has ended
}

TEST(Autocast, AScopeThatIsDestroyedOutOfTurnEndsWithThoseInsideOfIt) {
  auto* outer = new Autocast(DelayedScaling{});  // smart pointers do not let a destructor throw
  auto inner = std::make_unique<Autocast>(MXFP8BlockScaling{});
  EXPECT_THROW(delete outer, Error);
  inner.reset();
  EXPECT_EQ(current_autocast().recipe, nullptr);
  auto kept = std::make_unique<QuantizedModelInit>(DelayedScaling{});
  {
    const auto within = quantized_model_init(MXFP8BlockScaling{});
    kept.reset();
    EXPECT_TRUE(current_model_init().recipe->mxfp8());
  }
  EXPECT_EQ(current_model_init().recipe, nullptr);
}

TEST(Autocast, TheLastBackwardEndsItsStep) {
  const auto a = delayed_set(), b = delayed_set();
  std::shared_ptr<BackwardTicket> first, second, third;
  {
    const auto scope = autocast(DelayedScaling{});
    const auto region = current_autocast().region;
    first = region->expect_backward({a});
    second = region->expect_backward({b});
    third = region->expect_backward({b});  // whose backward will never come
  }
  b->set_amaxes(std::vector<float>{7});
  second->ran();
  second->ran();
  third.reset();
  EXPECT_EQ(inv_scale(*b), 1.0F);
  a->set_amaxes(std::vector<float>{14});
  first->ran();
  EXPECT_EQ(inv_scale(*a), 32.0F);
  EXPECT_EQ(inv_scale(*b), 64.0F);
}

TEST(Autocast, ABackwardThatNeverComesLetsTheOthersEndTheirStep) {
  const auto a = delayed_set(), b = delayed_set();
  const auto region = std::make_shared<Region>();
  auto first = region->expect_backward({a}), second = region->expect_backward({b});
  a->set_amaxes(std::vector<float>{14});
  first->ran();
  EXPECT_EQ(inv_scale(*a), 1.0F);
  second.reset();
  EXPECT_EQ(inv_scale(*a), 32.0F);
  EXPECT_EQ(a->amaxes(), (std::vector<float>{0}));
  EXPECT_EQ(inv_scale(*b), 1.0F);
  first.reset();  // is done already
  EXPECT_EQ(a->amax_history().span<float>()[1], 14.0F);
}

TEST(Autocast, AReducerThatThrowsForABackwardThatNeverComesChangesNothing) {
  const auto a = delayed_set(), b = delayed_set();
  const auto broken = std::make_shared<const Reducer>(
      [](std::span<float>) { throw std::runtime_error("connection lost"); });
  const auto region = std::make_shared<Region>();
  auto first = region->expect_backward({a, broken}), second = region->expect_backward({b, broken});
  a->set_amaxes(std::vector<float>{14});
  first->ran();
  second.reset();
  EXPECT_EQ(inv_scale(*a), 1.0F);
  EXPECT_EQ(a->amaxes(), (std::vector<float>{14}));
}

TEST(QuantizedModelInit, NestsAndRestores) {
  EXPECT_FALSE(current_model_init().enabled);
  {
    const auto outer =
        quantized_model_init(MXFP8BlockScaling{}, {.preserve_high_precision_init_val = true});
    EXPECT_TRUE(current_model_init().enabled);
    EXPECT_TRUE(current_model_init().preserve_high_precision_init_val);
    const auto off = quantized_model_init(MXFP8BlockScaling{}, {.enabled = false});
    EXPECT_FALSE(current_model_init().enabled);
    // The other kind of scope is not affected.
    EXPECT_FALSE(current_autocast().enabled);
  }
  EXPECT_FALSE(current_model_init().enabled);
  EXPECT_EQ(current_model_init().recipe, nullptr);
}

}  // namespace
}  // namespace octavo
