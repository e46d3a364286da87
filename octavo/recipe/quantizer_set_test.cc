#include "octavo/recipe/quantizer_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/error_testing_internal.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

constexpr float kInf = std::numeric_limits<float>::infinity();
const std::vector<TensorRole> kRoles{TensorRole::input, TensorRole::weight};

std::shared_ptr<QuantizerSet> make_set(const Recipe& recipe, const QuantizerSet* before = nullptr) {
  return std::make_shared<QuantizerSet>(recipe, QuantizerSetOptions{.roles = kRoles}, before);
}

std::vector<float> list_of(const Tensor& tensor) {
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

void step(QuantizerSet& set, std::vector<float> amaxes) {
  set.set_amaxes(amaxes);
  set.update();
}

TEST(QuantizerSet, DelayedStateByHand) {
  const auto set = make_set(DelayedScaling{.margin = 1, .amax_history_len = 3});
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{1, 1}));
  step(*set, {2, 0});  // 448 / 2 / 2; the weight has not run
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{112, 1}));
  EXPECT_EQ(list_of(set->scale()), (std::vector<float>{1.0F / 112, 1}));
  EXPECT_EQ(list_of(set->amax_history()), (std::vector<float>{0, 0, 0, 0, 2, 0}));
  step(*set, {kInf, 4});  // Inf keeps the scale while it is in the window
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{112, 56}));
  EXPECT_EQ(list_of(set->amax_history()), (std::vector<float>{0, 0, 2, 0, kInf, 4}));
}

TEST(QuantizerSet, QuantizersUseTheState) {
  const auto set = make_set(DelayedScaling{.amax_history_len = 2});
  std::vector<float> x{1, -3, 2, 0.5F};
  const QuantizedTensor q =
      set->of(TensorRole::input).quantize(value_view(x.data(), DType::f32, {2, 2}));
  EXPECT_EQ(set->amaxes(), (std::vector<float>{3, 0}));
  EXPECT_EQ(list_of(dequantize(q)), x);  // scale 1 has these numbers
  // Calibration sees the same and quantizes nothing.
  x[1] = 5;
  set->of(TensorRole::input).calibrate(value_view(x.data(), DType::f32, {2, 2}));
  EXPECT_EQ(set->amaxes(), (std::vector<float>{5, 0}));
}

TEST(QuantizerSet, SavedStateComesBack) {
  const auto set = make_set(DelayedScaling{.amax_history_len = 4});
  for (const float amax : {1.0F, 2.0F, 3.0F}) step(*set, {amax, 10 * amax});
  const auto other = make_set(DelayedScaling{.amax_history_len = 3});
  other->restore(set->amax_history().view(), set->inv_scale().view());
  EXPECT_EQ(list_of(other->amax_history()), (std::vector<float>{0, 0, 2, 20, 3, 30}));
  EXPECT_EQ(list_of(other->inv_scale()), list_of(set->inv_scale()));
  EXPECT_EQ(list_of(other->scale()), list_of(set->scale()));
  // What cannot be its state changes nothing; a part that is not given stays.
  std::vector<float> numbers{5, -1, 0, 7};
  const auto refused = [&](const View& history, const View& inv_scale) {
    try {
      other->restore(history, inv_scale);
    } catch (const Error& error) {
      return error.code() == ErrorCode::unsupported;
    }
    return false;
  };
  const View pair = value_view(numbers.data(), DType::f32, {2});
  EXPECT_TRUE(refused({}, pair));                                             // negative
  EXPECT_TRUE(refused({}, value_view(numbers.data() + 2, DType::f32, {2})));  // zero
  EXPECT_TRUE(refused({}, value_view(numbers.data(), DType::f32, {1})));      // too few
  EXPECT_TRUE(refused(value_view(numbers.data(), DType::f32, {2, 2}), {}));   // negative
  EXPECT_TRUE(refused(value_view(numbers.data(), DType::f32, {1, 3}), {}));   // too many slots
  EXPECT_TRUE(refused(value_view(numbers.data(), DType::f64, {1, 2}), {}));   // of another type
  EXPECT_EQ(list_of(other->inv_scale()), list_of(set->inv_scale()));
  EXPECT_EQ(list_of(other->amax_history()), (std::vector<float>{0, 0, 2, 20, 3, 30}));
  numbers = {2, 4};
  other->restore({}, pair);
  EXPECT_EQ(list_of(other->scale()), (std::vector<float>{0.5F, 0.25F}));
  EXPECT_EQ(list_of(other->amax_history()), (std::vector<float>{0, 0, 2, 20, 3, 30}));
  const auto stateless = make_set(MXFP8BlockScaling{});
  EXPECT_THROW(stateless->restore({}, pair), Error);
}

TEST(QuantizerSet, StateGoesOnWithinAFormat) {
  const auto set = make_set(DelayedScaling{.amax_history_len = 4});
  for (const float amax : {1.0F, 2.0F, 3.0F}) step(*set, {amax, 10 * amax});
  const auto shorter = make_set(DelayedScaling{.margin = 3, .amax_history_len = 3}, set.get());
  EXPECT_EQ(list_of(shorter->amax_history()), (std::vector<float>{0, 0, 2, 20, 3, 30}));
  EXPECT_EQ(list_of(shorter->inv_scale()), list_of(set->inv_scale()));
  const auto longer = make_set(DelayedScaling{.amax_history_len = 5}, shorter.get());
  EXPECT_EQ(list_of(longer->amax_history()), (std::vector<float>{0, 0, 0, 0, 0, 0, 2, 20, 3, 30}));
  // Another class has nothing to hand on.
  const auto mx = make_set(MXFP8BlockScaling{}, set.get());
  EXPECT_FALSE(mx->has_state());
  EXPECT_EQ(list_of(make_set(DelayedScaling{.amax_history_len = 1}, mx.get())->inv_scale()),
            (std::vector<float>{1, 1}));
}

TEST(QuantizerSet, AnIntervalKeepsAScaleForSeveralSteps) {
  const auto set = make_set(DelayedScaling{.amax_history_len = 4, .interval = 3});
  EXPECT_EQ(list_of(set->calls()), (std::vector<float>{0}));
  for (const float amax : {1.0F, 2.0F}) step(*set, {amax, 4});
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{1, 1}));
  EXPECT_EQ(list_of(set->calls()), (std::vector<float>{2}));
  step(*set, {1.75F, 4});
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{224, 112}));
  EXPECT_EQ(list_of(set->last_amax()), (std::vector<float>{1.75F, 4}));
  EXPECT_EQ(set->amaxes(), (std::vector<float>{0, 0}));
  // The count is state.
  const auto other = make_set(DelayedScaling{.amax_history_len = 4, .interval = 3});
  const std::vector<float> two{2};
  other->restore(set->amax_history().view(), set->inv_scale().view(), nullptr,
                 value_view(const_cast<float*>(two.data()), DType::f32, {1}));
  step(*other, {7, 7});
  EXPECT_EQ(list_of(other->inv_scale()), (std::vector<float>{64, 64}));
}

TEST(QuantizerSet, FunctionsOfTheUserKeepTheInterval) {
  const auto newest = std::make_shared<const AmaxAlgorithm>(
      [](std::span<const float> window) { return window.back(); });
  const auto set = make_set(
      DelayedScaling{.amax_history_len = 2, .interval = 2, .amax_compute_function = newest});
  step(*set, {2, 4});
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{1, 1}));
  step(*set, {4, 2});
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{112, 224}));
  EXPECT_EQ(list_of(set->last_amax()), (std::vector<float>{4, 2}));
}

TEST(QuantizerSet, AMovingAverageHasItsDecay) {
  const auto set = make_set(DelayedScaling{
      .amax_history_len = 4, .amax_compute_algo = HistoryPolicy::ema, .amax_ema_decay = 0.5F});
  for (const float amax : {1.0F, 2.0F, 0.5F}) step(*set, {amax, 0});
  EXPECT_EQ(list_of(set->inv_scale())[0], 448.0F / 1.0F);  // ((1 + 2) / 2 + 0.5) / 2
}

TEST(QuantizerSet, AfterAnotherRecipeTheFirstValuesAreTheHistory) {
  const auto before = make_set(MXFP8BlockScaling{});
  const auto set = make_set(DelayedScaling{.margin = 1, .amax_history_len = 3}, before.get());
  EXPECT_TRUE(set->has_seeds_to_come());
  std::vector<float> x{1, -3.5F, 2, 0.5F};
  const View values = value_view(x.data(), DType::f32, {2, 2});
  set->seed(TensorRole::input, values);
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{64, 1}));  // 448 / 2 / 3.5
  EXPECT_EQ(list_of(set->scale()), (std::vector<float>{1.0F / 64, 1}));
  EXPECT_EQ(list_of(set->amax_history()), (std::vector<float>{0, 0, 0, 0, 3.5F, 0}));
  x[0] = 100;  // once only
  set->seed(TensorRole::input, values);
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{64, 1}));
  EXPECT_TRUE(set->has_seeds_to_come());
  set->seed(TensorRole::weight, values);
  EXPECT_FALSE(set->has_seeds_to_come());
  // Restored state needs none, nor does the first recipe, nor one of the same format.
  const auto restored = make_set(DelayedScaling{.amax_history_len = 3}, before.get());
  restored->restore(set->amax_history().view(), set->inv_scale().view());
  EXPECT_FALSE(restored->has_seeds_to_come());
  EXPECT_FALSE(make_set(DelayedScaling{})->has_seeds_to_come());
  EXPECT_FALSE(make_set(DelayedScaling{.margin = 2}, set.get())->has_seeds_to_come());
}

TEST(QuantizerSet, FunctionsOfTheUser) {
  std::vector<float> seen;
  const auto second = std::make_shared<const AmaxAlgorithm>([&](std::span<const float> history) {
    seen.assign(history.begin(), history.end());
    return history.size() > 1 ? history[history.size() - 2] : history.back();
  });
  const auto set = make_set(DelayedScaling{.amax_history_len = 3, .amax_compute_function = second});
  step(*set, {7, 0});
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{1, 1}));  // zero keeps the scale
  step(*set, {2, 0});
  EXPECT_EQ(seen, (std::vector<float>{0, 7, 2}));  // from the oldest to the newest
  EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{64, 1}));
  EXPECT_EQ(list_of(set->amax_history()), (std::vector<float>{0, 0, 7, 0, 2, 0}));

  const auto gentle = std::make_shared<const ScaleAlgorithm>(
      [](float amax, float old, float largest) { return (old + largest / amax) / 2; });
  const auto other =
      make_set(DelayedScaling{.amax_history_len = 3, .scaling_factor_compute_algo = gentle});
  step(*other, {7, 0});
  EXPECT_EQ(list_of(other->inv_scale()), (std::vector<float>{32.5F, 1}));
  EXPECT_EQ(other->scale().span<float>()[0], 1.0F / 32.5F);
  step(*other, {1, 0});  // the largest of the window is still 7
  EXPECT_EQ(list_of(other->inv_scale()), (std::vector<float>{48.25F, 1}));

  const auto wrong =
      std::make_shared<const ScaleAlgorithm>([](float, float, float) { return -1.0F; });
  const auto refused =
      make_set(DelayedScaling{.amax_history_len = 2, .scaling_factor_compute_algo = wrong});
  refused->set_amaxes(std::vector<float>{1, 1});
  EXPECT_THROW(refused->update(), Error);
  EXPECT_EQ(refused->amaxes(), (std::vector<float>{1, 1}));  // nothing moved
}

TEST(QuantizerSet, AGroupIsReducedInOneCall) {
  std::vector<std::size_t> calls;
  const auto group = std::make_shared<const Reducer>([&](std::span<float> numbers) {
    calls.push_back(numbers.size());
    for (float& number : numbers) number = std::max(number, 14.0F);
  });
  const auto a = make_set(DelayedScaling{.amax_history_len = 2}),
             b = make_set(DelayedScaling{.amax_history_len = 2}),
             alone = make_set(DelayedScaling{.amax_history_len = 2, .reduce_amax = false}),
             mx = make_set(MXFP8BlockScaling{});
  for (const auto& set : {a, b, alone}) set->set_amaxes(std::vector<float>{28, 7});
  const std::vector<StepEntry> entries{{a, group}, {b, group}, {alone, group}, {mx, group}};
  end_step(entries);
  EXPECT_EQ(calls, (std::vector<std::size_t>{4}));
  EXPECT_EQ(list_of(a->inv_scale()), (std::vector<float>{16, 32}));
  EXPECT_EQ(list_of(b->inv_scale()), (std::vector<float>{16, 32}));
  EXPECT_EQ(list_of(alone->inv_scale()), (std::vector<float>{16, 64}));
}

TEST(QuantizerSet, AReducerThatThrowsChangesNothing) {
  const auto broken = std::make_shared<const Reducer>(
      [](std::span<float>) { throw std::runtime_error("connection lost"); });
  const auto a = make_set(DelayedScaling{.amax_history_len = 2});
  a->set_amaxes(std::vector<float>{28, 7});
  EXPECT_THROW(end_step(std::vector<StepEntry>{{a, broken}}), std::runtime_error);
  EXPECT_EQ(a->amaxes(), (std::vector<float>{28, 7}));
  EXPECT_EQ(list_of(a->inv_scale()), (std::vector<float>{1, 1}));
  forget_step(std::vector<StepEntry>{{a, broken}});
  EXPECT_EQ(a->amaxes(), (std::vector<float>{0, 0}));
}

// A negative amax would make a negative scale, and NaN would stay in the history.
TEST(QuantizerSet, AReducerThatGivesNoMagnitudesChangesNothing) {
  for (const float wrong : {-1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    const auto broken =
        std::make_shared<const Reducer>([&](std::span<float> numbers) { numbers[1] = wrong; });
    const auto first = make_set(DelayedScaling{.amax_history_len = 2}),
               a = make_set(DelayedScaling{.amax_history_len = 2});
    const auto good = std::make_shared<const Reducer>([](std::span<float>) {});
    for (const auto& set : {first, a}) set->set_amaxes(std::vector<float>{28, 7});
    expect_refused(ErrorCode::invalid_argument, "the amax group gave", [&] {
      end_step(std::vector<StepEntry>{{first, good}, {a, broken}});
    });
    for (const auto& set : {first, a}) {
      EXPECT_EQ(set->amaxes(), (std::vector<float>{28, 7}));
      EXPECT_EQ(list_of(set->inv_scale()), (std::vector<float>{1, 1}));
    }
  }
  const auto infinite =
      std::make_shared<const Reducer>([](std::span<float> numbers) { numbers[0] = kInf; });
  const auto a = make_set(DelayedScaling{.amax_history_len = 2});
  a->set_amaxes(std::vector<float>{28, 7});
  end_step(std::vector<StepEntry>{{a, infinite}});  // which keeps its scale
  EXPECT_EQ(list_of(a->inv_scale()), (std::vector<float>{1, 64}));
}

TEST(QuantizerSet, StateLiesInMemoryOfTheCaller) {
  std::vector<std::vector<float>> buffers;
  const MakeTensor make = [&](const View& like) {
    buffers.emplace_back(static_cast<std::size_t>(element_count(like.shape)), 99.0F);
    return Tensor::adopt(value_view(buffers.back().data(), DType::f32, like.shape), nullptr);
  };
  QuantizerSet set(DelayedScaling{.amax_history_len = 2}, {.roles = kRoles, .make = make});
  ASSERT_EQ(buffers.size(), 4U);  // and last amaxes
  step(set, {7, 14});
  EXPECT_EQ(buffers[0], (std::vector<float>{0, 0, 7, 14}));
  EXPECT_EQ(buffers[1], (std::vector<float>{64, 32}));
  EXPECT_EQ(buffers[2], (std::vector<float>{1.0F / 64, 1.0F / 32}));
  EXPECT_EQ(buffers[3], (std::vector<float>{7, 14}));
  const MakeTensor wrong = [](const View&) { return Tensor::values({1}, DType::f32); };
  EXPECT_THROW(QuantizerSet(DelayedScaling{}, {.roles = kRoles, .make = wrong}), Error);
}

TEST(QuantizerSet, DrawsAreNewEachTime) {
  const std::vector<TensorRole> roles{TensorRole::grad_output};
  QuantizerSet set(NVFP4BlockScaling{}, {.direction = Direction::backward, .roles = roles});
  const auto seed = [&] {
    return set.with_new_draws(TensorRole::grad_output).scaling().encode.seed;
  };
  const std::uint64_t first = seed(), second = seed();
  EXPECT_NE(first, second);
  QuantizerSet again(NVFP4BlockScaling{}, {.direction = Direction::backward, .roles = roles});
  EXPECT_EQ(again.with_new_draws(TensorRole::grad_output).scaling().encode.seed, first);
}

TEST(QuantizerSet, WhatIsMissingIsNamed) {
  const auto set = make_set(MXFP8BlockScaling{});
  EXPECT_THROW((void)set->of(TensorRole::grad_output), Error);
  EXPECT_THROW(set->set_amaxes(std::vector<float>{1, 2}), Error);
  EXPECT_THROW((void)make_quantizer(DelayedScaling{}, {"Linear", TensorRole::input, ""}), Error);
}

}  // namespace
}  // namespace octavo
