#include "octavo/quant/delayed.h"

#include <cstddef>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/exec/place_internal.h"
#include "octavo/format/parse_format.h"
#include "octavo/scale/scale_spec.h"
#include "octavo/scale/tile_scale.h"

namespace octavo {
namespace {

// A view with dimensions and without memory was meant, and is an error.
bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

void check_floats(const View& view, std::string_view op, std::string_view what) {
  check(view.dtype == DType::f32, ErrorCode::wrong_type, op, what, " is ", dtype_name(view.dtype),
        "; expected float32; scales and amaxes are kept in float32");
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
    fail(ErrorCode::invalid_argument, op, what, " has shape ", to_string(view.shape),
         "; expected [", size, "]: one for each column of the history");
  // One element written for all of them would be the last tensor's.
  check(size <= 1 || view.strides[0] != 0, ErrorCode::invalid_argument, op, what,
        " is one element repeated (stride 0); give each tensor its own");
}

void check_state(const DelayedState& state, std::string_view op) {
  const Shape& shape = state.history.shape;
  check_floats(state.history, op, "the history");
  if (shape.rank() != 2 || shape[0] < 1 || shape[0] > kMaxHistory)
    fail(ErrorCode::invalid_argument, op, "the history has shape ", to_string(shape),
         "; expected [length, tensors] with a length of 1 to ", kMaxHistory,
         "; 1 keeps no more than the newest amax");
  check(shape[1] == 0 || ((shape[0] <= 1 || state.history.strides[0] != 0) &&
                          (shape[1] <= 1 || state.history.strides[1] != 0)),
        ErrorCode::invalid_argument, op,
        "the history repeats elements (stride 0); give each its own");
  check_vector(state.inv_scale, shape[1], op, "inv_scale");
  if (is_given(state.scale)) check_vector(state.scale, shape[1], op, "scale");
  if (is_given(state.last)) check_vector(state.last, shape[1], op, "last");
  if (is_given(state.calls)) {
    check_floats(state.calls, op, "calls");
    if (element_count(state.calls.shape) != 1)
      fail(ErrorCode::invalid_argument, op, "calls has shape ", to_string(state.calls.shape),
           "; expected one element");
  }
}

void check_rule(const DelayedRule& rule, const DelayedState& state, std::string_view op) {
  if (const auto problem = format_problem(rule.format))
    fail(ErrorCode::invalid_argument, op, "that format cannot be: ", *problem);
  check(rule.margin >= -kMaxMargin && rule.margin <= kMaxMargin, ErrorCode::invalid_argument, op,
        "got margin = ", rule.margin, "; expected -", kMaxMargin, " to ", kMaxMargin);
  check(rule.policy != HistoryPolicy::ema || (rule.decay > 0.0F && rule.decay < 1.0F),
        ErrorCode::invalid_argument, op, "got decay = ", rule.decay,
        "; expected more than 0 and less than 1; 0 would be most_recent");
  check(rule.interval >= 1 && rule.interval <= kMaxInterval, ErrorCode::invalid_argument, op,
        "got interval = ", rule.interval, "; expected 1 to ", kMaxInterval);
  check(rule.interval == 1 || is_given(state.calls), ErrorCode::invalid_argument, op,
        "got interval = ", rule.interval,
        " and no memory to count calls in; give state.calls, one float32");
}

FloatRow row_of(const View& view, int dimension) {
  const std::int64_t stride = view.shape.rank() > dimension ? view.strides[dimension] : 0;
  return {static_cast<std::byte*>(view.data), stride};
}

// Runs where the state is.
void run(const DelayedState& state, DelayedJob job, void* stream, std::string_view op) {
  std::vector<NamedView> views{{&state.history, "the history"}, {&state.inv_scale, "inv_scale"}};
  if (is_given(state.scale)) views.push_back({&state.scale, "scale"});
  if (is_given(state.calls)) views.push_back({&state.calls, "calls"});
  if (is_given(state.last)) views.push_back({&state.last, "last"});
  const Exec exec{.device = common_device(views, op), .stream = stream};
  job.history = row_of(state.history, 0);
  job.tensor_stride = state.history.strides[1];
  job.length = state.history.shape[0];
  job.tensors = state.history.shape[1];
  job.inv_scale = row_of(state.inv_scale, 0);
  if (is_given(state.scale)) job.scale = row_of(state.scale, 0);
  if (is_given(state.last)) job.last = row_of(state.last, 0);
  job.calls = {static_cast<std::byte*>(state.calls.data), 0};
  offered(exec, nullptr, &Kernels::delayed_update, op)(exec, job);
}

}  // namespace

void reset_delayed(const DelayedState& state, void* stream) {
  constexpr std::string_view kOp = "reset_delayed";
  check_state(state, kOp);
  run(state, {.reset = true}, stream, kOp);
}

void update_delayed(const DelayedState& state, const DelayedRule& rule, void* stream) {
  constexpr std::string_view kOp = "update_delayed";
  check_state(state, kOp);
  check_rule(rule, state, kOp);
  const FpEnvGuard guard;
  const float top = static_cast<float>(max_value(rule.format)) * f32_power_of_two(-rule.margin);
  run(state, {.policy = rule.policy, .top = top, .decay = rule.decay, .interval = rule.interval},
      stream, kOp);
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
       "\"; expected max, most_recent or ema");
}

}  // namespace octavo
