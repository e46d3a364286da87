#include "octavo/quant/delayed.h"

#include <cstddef>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/parse_format.h"
#include "octavo/scale/scale_spec.h"
#include "octavo/scale/tile_scale.h"

namespace octavo {
namespace {

// One column of the state, whatever its strides.
class Floats {
 public:
  Floats(const View& view, std::int64_t offset, std::int64_t stride)
      : first_(static_cast<std::byte*>(view.data) + offset), stride_(stride) {}

  [[nodiscard]] float operator[](std::int64_t i) const {
    float value;
    std::memcpy(&value, first_ + i * stride_, sizeof value);
    return value;
  }
  void set(std::int64_t i, float value) const {
    std::memcpy(first_ + i * stride_, &value, sizeof value);
  }

 private:
  std::byte* first_;
  std::int64_t stride_;
};

Floats vector_of(const View& view) { return {view, 0, view.strides[0]}; }
Floats history_of(const View& history, std::int64_t tensor) {
  return {history, tensor * history.strides[1], history.strides[0]};
}

void check_floats(const View& view, std::string_view op, std::string_view what) {
  check(view.dtype == DType::f32, ErrorCode::wrong_type, op, what, " is ", dtype_name(view.dtype),
        ", wanted float32; scales and amaxes are kept in float32");
  check(view.device.kind == DeviceKind::cpu, ErrorCode::unsupported, op, what,
        " is on a GPU, and this build updates on the CPU only; copy it to the CPU first");
  check(!view.read_only, ErrorCode::invalid_argument, op, what,
        " is read-only; give memory that may be written");
  check(view.strides.rank() == view.shape.rank(), ErrorCode::invalid_argument, op, what, " has ",
        view.shape.rank(), " dimensions but ", view.strides.rank(),
        " strides; give one stride per dimension");
  check(view.data != nullptr || element_count(view.shape) == 0, ErrorCode::invalid_argument, op,
        what, " has no memory (null data); give a float32 tensor");
}

void check_vector(const View& view, std::int64_t size, std::string_view op, std::string_view what) {
  check_floats(view, op, what);
  if (view.shape != Shape{size})
    fail(ErrorCode::invalid_argument, op, what, " has shape ", to_string(view.shape), ", wanted [",
         size, "]: one for each column of the history");
  // One element written for all of them would be the last tensor's.
  check(size <= 1 || view.strides[0] != 0, ErrorCode::invalid_argument, op, what,
        " is one element repeated (stride 0); give each tensor its own");
}

void check_state(const DelayedState& state, std::string_view op) {
  const Shape& shape = state.history.shape;
  check_floats(state.history, op, "the history");
  if (shape.rank() != 2 || shape[0] < 1 || shape[0] > kMaxHistory)
    fail(ErrorCode::invalid_argument, op, "the history has shape ", to_string(shape),
         ", wanted [length, tensors] with a length of 1 to ", kMaxHistory,
         "; 1 keeps no more than the newest amax");
  check(shape[1] == 0 || ((shape[0] <= 1 || state.history.strides[0] != 0) &&
                          (shape[1] <= 1 || state.history.strides[1] != 0)),
        ErrorCode::invalid_argument, op,
        "the history repeats elements (stride 0); give each its own");
  check_vector(state.inv_scale, shape[1], op, "inv_scale");
  if (state.scale.data != nullptr) check_vector(state.scale, shape[1], op, "scale");
  if (state.calls.data != nullptr) {
    check_floats(state.calls, op, "calls");
    if (element_count(state.calls.shape) != 1)
      fail(ErrorCode::invalid_argument, op, "calls has shape ", to_string(state.calls.shape),
           ", wanted one element");
  }
}

// f32 counts calls exactly up to here.
constexpr std::int64_t kMaxInterval = std::int64_t{1} << 24;

void check_rule(const DelayedRule& rule, const DelayedState& state, std::string_view op) {
  if (const auto problem = format_problem(rule.format))
    fail(ErrorCode::invalid_argument, op, "that format cannot be: ", *problem);
  check(rule.margin >= -kMaxMargin && rule.margin <= kMaxMargin, ErrorCode::invalid_argument, op,
        "got margin = ", rule.margin, ", wanted -", kMaxMargin, " to ", kMaxMargin);
  check(rule.policy != HistoryPolicy::ema || (rule.decay > 0.0F && rule.decay < 1.0F),
        ErrorCode::invalid_argument, op, "got decay = ", rule.decay,
        ", wanted more than 0 and less than 1; 0 would be most_recent");
  check(rule.interval >= 1 && rule.interval <= kMaxInterval, ErrorCode::invalid_argument, op,
        "got interval = ", rule.interval, ", wanted 1 to ", kMaxInterval);
  check(rule.interval == 1 || state.calls.data != nullptr, ErrorCode::invalid_argument, op,
        "got interval = ", rule.interval,
        " and no memory to count calls in; give state.calls, one float32");
}

// Row 1 is the oldest and row 0 the newest, so they are seen in the order 1, 2, ..., 0.
float window_amax(const Floats& history, std::int64_t length, const DelayedRule& rule) {
  if (rule.policy == HistoryPolicy::most_recent) return history[0];
  float result = 0;
  for (std::int64_t i = 1; i <= length; ++i) {
    const float amax = history[i % length];
    if (!(amax > 0.0F)) continue;  // zero or NaN
    if (rule.policy == HistoryPolicy::max) {
      result = amax > result ? amax : result;
    } else {
      // The first is the start; rounded after each operation, as everywhere.
      const float kept = rule.decay * result, added = (1.0F - rule.decay) * amax;
      result = result == 0.0F ? amax : kept + added;
    }
  }
  return result;
}

void roll(const Floats& history, std::int64_t length) {
  const float newest = history[0];
  for (std::int64_t i = 1; i + 1 < length; ++i) history.set(i, history[i + 1]);
  if (length > 1) history.set(length - 1, newest);
  history.set(0, 0.0F);
}

// Counts this call; true where it is the one that makes new scales.
bool is_due(const View& calls, std::int64_t interval) {
  if (calls.data == nullptr) return true;
  const Floats counter(calls, 0, 0);
  const float count = counter[0] + 1.0F;
  const bool due = !(count < static_cast<float>(interval));  // NaN: better now than never
  counter.set(0, due ? 0.0F : count);
  return due;
}

}  // namespace

void reset_delayed(const DelayedState& state) {
  check_state(state, "reset_delayed");
  const std::int64_t length = state.history.shape[0], tensors = state.history.shape[1];
  for (std::int64_t tensor = 0; tensor < tensors; ++tensor) {
    const Floats history = history_of(state.history, tensor);
    for (std::int64_t i = 0; i < length; ++i) history.set(i, 0.0F);
    vector_of(state.inv_scale).set(tensor, 1.0F);
    if (state.scale.data != nullptr) vector_of(state.scale).set(tensor, 1.0F);
  }
  if (state.calls.data != nullptr) Floats(state.calls, 0, 0).set(0, 0.0F);
}

void update_delayed(const DelayedState& state, const DelayedRule& rule) {
  constexpr std::string_view kOp = "update_delayed";
  check_state(state, kOp);
  check_rule(rule, state, kOp);
  const FpEnvGuard guard;
  const bool due = is_due(state.calls, rule.interval);
  const float top = static_cast<float>(max_value(rule.format)) * f32_power_of_two(-rule.margin);
  const std::int64_t length = state.history.shape[0], tensors = state.history.shape[1];
  const Floats inv_scales = vector_of(state.inv_scale);
  for (std::int64_t tensor = 0; tensor < tensors; ++tensor) {
    const Floats history = history_of(state.history, tensor);
    if (history[0] == 0.0F) continue;
    if (due) {
      const float amax = window_amax(history, length, rule);
      if (amax > 0.0F && is_finite(amax)) {
        inv_scales.set(tensor, clamped_scale(top / amax));
        if (state.scale.data != nullptr)
          vector_of(state.scale).set(tensor, 1.0F / inv_scales[tensor]);
      }
    }
    roll(history, length);
  }
}

std::string_view name_of(HistoryPolicy policy) {
  switch (policy) {
    case HistoryPolicy::max:
      return "max";
    case HistoryPolicy::most_recent:
      return "most_recent";
    case HistoryPolicy::ema:
      return "ema";
  }
  return "?";
}

HistoryPolicy parse_history_policy(std::string_view name) {
  for (const auto policy : {HistoryPolicy::max, HistoryPolicy::most_recent, HistoryPolicy::ema})
    if (name == name_of(policy)) return policy;
  fail(ErrorCode::invalid_argument, "history policy", "got \"", shown(name),
       "\", wanted max, most_recent or ema");
}

}  // namespace octavo
