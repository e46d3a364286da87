#include "octavo/quant/delayed.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/tensor/tensor.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct State {
  explicit State(std::int64_t length, std::int64_t tensors = 1)
      : history(Tensor::values({length, tensors}, DType::f32)),
        inv_scale(Tensor::values({tensors}, DType::f32)),
        scale(Tensor::values({tensors}, DType::f32)),
        calls(Tensor::values({1}, DType::f32)) {
    reset_delayed(views());
  }
  [[nodiscard]] DelayedState views() const {
    return {history.view(), inv_scale.view(), scale.view(), calls.view()};
  }
  [[nodiscard]] std::vector<float> rows(std::int64_t tensor = 0) const {
    std::vector<float> out;
    for (std::int64_t i = 0; i < history.shape()[0]; ++i) out.push_back(at(i, tensor));
    return out;
  }
  [[nodiscard]] float& at(std::int64_t row, std::int64_t tensor = 0) const {
    return history.span<float>()[static_cast<std::size_t>(row * history.shape()[1] + tensor)];
  }
  // A step: this amax is gathered, then the step ends.
  void step(float amax, const DelayedRule& rule = {}) const {
    at(0) = amax;
    update_delayed(views(), rule);
  }
  [[nodiscard]] float inv() const { return inv_scale.span<float>()[0]; }

  Tensor history, inv_scale, scale, calls;
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

struct Step {
  float amax, inv_scale;
  std::vector<float> history;  // afterwards
};

void play(const std::vector<Step>& steps, const DelayedRule& rule) {
  const State state(4);
  int number = 0;
  for (const Step& step : steps) {
    SCOPED_TRACE(++number);
    state.step(step.amax, rule);
    EXPECT_EQ(state.inv(), step.inv_scale);
    EXPECT_EQ(state.scale.span<float>()[0], 1.0F / step.inv_scale);
    EXPECT_TRUE(same(state.rows(), step.history)) << testing::PrintToString(state.rows());
  }
}

TEST(Delayed, BeginsWithScalesOfOne) {
  const State state(3, 2);
  EXPECT_EQ(state.rows(1), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(state.inv_scale.span<float>()[1], 1.0F);
  EXPECT_EQ(state.scale.span<float>()[0], 1.0F);
}

TEST(Delayed, MaxByHand) {
  play(
      {
          {2, 224, {0, 0, 0, 2}},        // 448 / 2
          {4, 112, {0, 0, 2, 4}},        //
          {1, 112, {0, 2, 4, 1}},        // 4 is the largest of the window
          {1, 112, {0, 4, 1, 1}},        // 2 is forgotten
          {1, 112, {0, 1, 1, 1}},        // the oldest counts one last time
          {1, 448, {0, 1, 1, 1}},        //
          {0, 448, {0, 1, 1, 1}},        // has not run: nothing moves
          {kInf, 448, {0, 1, 1, kInf}},  // the scale stays while Inf is in the window
          {2, 448, {0, 1, kInf, 2}},     //
          {2, 448, {0, kInf, 2, 2}},     //
          {2, 448, {0, 2, 2, 2}},        //
          {2, 224, {0, 2, 2, 2}},        //
          {kNan, 224, {0, 2, 2, kNan}},  // NaN moves on but does not count
          {8, 56, {0, 2, kNan, 8}},
      },
      {});
}

TEST(Delayed, MostRecentByHand) {
  play(
      {
          {2, 224, {0, 0, 0, 2}},
          {4, 112, {0, 0, 2, 4}},
          {1, 448, {0, 2, 4, 1}},
          {kNan, 448, {0, 4, 1, kNan}},
          {kInf, 448, {0, 1, kNan, kInf}},
          {0, 448, {0, 1, kNan, kInf}},
          {7, 64, {0, kNan, kInf, 7}},
      },
      {.policy = HistoryPolicy::most_recent});
}

TEST(Delayed, EmaByHand) {
  // Each half of what was and half of the new one; the first as it is.
  play(
      {
          {4, 112, {0, 0, 0, 4}},
          {2, 448.0F / 3.0F, {0, 0, 4, 2}},
          {8, 448.0F / 5.5F, {0, 4, 2, 8}},
          {2.5F, 448.0F / 4.0F, {0, 2, 8, 2.5F}},
          {7, 448.0F / 5.375F, {0, 8, 2.5F, 7}},        // from 2 on: 2, 5, 3.75, 5.375
          {kNan, 448.0F / 6.125F, {0, 2.5F, 7, kNan}},  // 8, 5.25, 6.125
          {kInf, 448.0F / 6.125F, {0, 7, kNan, kInf}},
      },
      {.policy = HistoryPolicy::ema, .decay = 0.5F});
}

TEST(Delayed, OtherFormatsAndMargins) {
  const State state(1);
  state.step(7, {.format = e5m2});
  EXPECT_EQ(state.inv(), 8192.0F);
  state.step(2, {.margin = 2});
  EXPECT_EQ(state.inv(), 56.0F);
  state.step(2, {.margin = -1});
  EXPECT_EQ(state.inv(), 448.0F);
  state.step(3);
  EXPECT_EQ(state.inv(), 448.0F / 3.0F);
  EXPECT_EQ(state.scale.span<float>()[0], 1.0F / (448.0F / 3.0F));
  EXPECT_EQ(state.rows(), (std::vector<float>{0}));  // a history of one keeps nothing
}

TEST(Delayed, ScalesStayFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const State state(1);
  state.step(std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(state.inv(), kMax);
  EXPECT_EQ(state.scale.span<float>()[0], 1.0F / kMax);
  state.step(kMax);
  EXPECT_EQ(state.inv(), 448.0F / kMax);
  state.step(kMax, {.margin = 64});
  EXPECT_EQ(state.inv(), 0x1p-126F);
}

TEST(Delayed, TensorsDoNotDisturbEachOther) {
  const State state(2, 3);
  state.at(0, 0) = 2;
  state.at(0, 2) = 14;
  update_delayed(state.views(), {});
  EXPECT_EQ(state.inv_scale.span<float>()[0], 224.0F);
  EXPECT_EQ(state.inv_scale.span<float>()[1], 1.0F);
  EXPECT_EQ(state.inv_scale.span<float>()[2], 32.0F);
  EXPECT_EQ(state.rows(0), (std::vector<float>{0, 2}));
  EXPECT_EQ(state.rows(1), (std::vector<float>{0, 0}));
  EXPECT_EQ(state.rows(2), (std::vector<float>{0, 14}));
}

TEST(Delayed, ANewScaleEveryThirdCall) {
  const State state(4);
  const DelayedRule rule{.interval = 3};
  state.step(2, rule);
  state.step(4, rule);
  EXPECT_EQ(state.inv(), 1.0F);
  EXPECT_EQ(state.rows(), (std::vector<float>{0, 0, 2, 4}));  // the history moves all the same
  state.step(1, rule);
  EXPECT_EQ(state.inv(), 112.0F);
  for (const float amax : {1.0F, 1.0F}) state.step(amax, rule);
  EXPECT_EQ(state.inv(), 112.0F);
  state.step(1, rule);
  EXPECT_EQ(state.inv(), 448.0F);
  EXPECT_EQ(state.calls.span<float>()[0], 0.0F);
}

TEST(Delayed, TakesViewsOfLargerTensors) {
  // Two columns of a [4, 6] history, and every other element of the scales.
  const State state(4, 6);
  DelayedState views = state.views();
  views.history.data = &state.at(0, 1);
  views.history.shape = {4, 2};
  views.history.strides = {24, 8};
  views.inv_scale.shape = {2};
  views.inv_scale.strides = {8};
  views.scale = {};
  views.calls = {};
  state.at(0, 1) = 2;
  state.at(0, 2) = 5;
  state.at(0, 3) = 4;
  update_delayed(views, {});
  EXPECT_EQ(state.inv_scale.span<float>()[0], 224.0F);
  EXPECT_EQ(state.inv_scale.span<float>()[1], 1.0F);
  EXPECT_EQ(state.inv_scale.span<float>()[2], 112.0F);
  EXPECT_EQ(state.at(0, 2), 5.0F);
  EXPECT_EQ(state.rows(3), (std::vector<float>{0, 0, 0, 4}));
}

TEST(Delayed, TheLongestHistory) {
  const State state(kMaxHistory);
  state.step(100);
  for (std::int64_t i = 1; i < kMaxHistory; ++i) state.step(1);
  EXPECT_EQ(state.inv(), 4.48F);
  state.step(1);
  EXPECT_EQ(state.inv(), 448.0F);
}

TEST(Delayed, NoTensorsIsNoWork) {
  const State state(4, 0);
  update_delayed(state.views(), {});
}

void refuses(const DelayedState& state, const DelayedRule& rule, const std::string& part,
             ErrorCode code = ErrorCode::invalid_argument) {
  try {
    update_delayed(state, rule);
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Delayed, SaysWhatIsWrongAndChangesNothing) {
  const State state(4, 2);
  state.at(0) = 2;
  const DelayedState good = state.views();
  const auto with = [&](auto&& change) {
    DelayedState changed = good;
    change(changed);
    return changed;
  };
  for (const std::int64_t length : {0, 1025})
    refuses(with([&](auto& s) { s.history.shape[0] = length; }), {}, "a length of 1 to 1024");
  refuses(with([](auto& s) { s.history.shape = s.history.strides = {4}; }), {}, "shape [4]");
  refuses(with([](auto& s) { s.history.dtype = DType::bf16; }), {}, "bfloat16; expected float32",
          ErrorCode::wrong_type);
  refuses(with([](auto& s) { s.history.data = nullptr; }), {}, "null");
  refuses(with([](auto& s) { s.history.read_only = true; }), {}, "read-only");
  refuses(with([](auto& s) { s.history.strides[1] = 0; }), {}, "stride 0");
  refuses(with([](auto& s) { s.history.strides = {4}; }), {}, "strides");
  refuses(with([](auto& s) { s.history.device.kind = DeviceKind::cuda; }), {},
          "the history is on cuda:0 and inv_scale on cpu");
  refuses(with([](auto& s) { s.inv_scale.data = nullptr; }), {}, "inv_scale has no memory");
  refuses(with([](auto& s) { s.inv_scale.shape = {3}; }), {}, "inv_scale has shape [3]; expected");
  refuses(with([](auto& s) { s.inv_scale.dtype = DType::f64; }), {}, "expected float32",
          ErrorCode::wrong_type);
  refuses(with([](auto& s) { s.inv_scale.strides[0] = 0; }), {}, "repeated");
  refuses(with([](auto& s) { s.scale.shape = {1}; }), {}, "scale has shape [1]");
  refuses(with([](auto& s) { s.calls.shape = {2}; }), {}, "calls has shape [2]");
  // Without memory they were meant all the same.
  refuses(with([](auto& s) { s.scale.data = nullptr; }), {}, "scale has no memory");
  refuses(with([](auto& s) { s.calls.data = nullptr; }), {}, "calls has no memory");
  refuses(with([](auto& s) { s.calls = {}; }), {.interval = 2}, "state.calls");
  refuses(good, {.margin = 65}, "margin");
  refuses(good, {.interval = 0}, "interval");
  for (const float decay : {0.0F, 1.0F, kNan})
    refuses(good, {.policy = HistoryPolicy::ema, .decay = decay}, "decay");
  EXPECT_EQ(state.rows(), (std::vector<float>{2, 0, 0, 0}));
  EXPECT_EQ(state.inv(), 1.0F);
  EXPECT_EQ(state.calls.span<float>()[0], 0.0F);
}

TEST(Delayed, PoliciesHaveNames) {
  for (const auto policy : {HistoryPolicy::max, HistoryPolicy::most_recent, HistoryPolicy::ema})
    EXPECT_EQ(parse_history_policy(name_of(policy)), policy);
  EXPECT_THROW((void)parse_history_policy("median"), Error);
}

}  // namespace
}  // namespace octavo
