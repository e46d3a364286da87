#include "octavo/recipe/autocast.h"

#include <exception>
#include <utility>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

// Which scope object opened a frame is only compared, never looked at.
template <typename State>
struct Frame {
  const void* scope;
  State state;
};
template <typename State>
using Stack = std::vector<Frame<State>>;

Stack<AutocastState>& autocasts() {
  thread_local Stack<AutocastState> stack;
  return stack;
}
Stack<ModelInitState>& model_inits() {
  thread_local Stack<ModelInitState> stack;
  return stack;
}

template <typename State>
State top(const Stack<State>& stack) {
  return stack.empty() ? State{} : stack.back().state;
}

template <typename State>
State popped(Stack<State>& stack, const void* scope, std::string_view op) {
  check(!stack.empty() && stack.back().scope == scope, ErrorCode::invalid_argument, op,
        "got the end of a scope that is not the innermost of this thread; end scopes in the "
        "reverse order of their beginning, on the thread that began them");
  State state = std::move(stack.back().state);
  stack.pop_back();
  return state;
}

}  // namespace

AutocastState current_autocast() { return top(autocasts()); }
ModelInitState current_model_init() { return top(model_inits()); }

Autocast::Autocast(const Recipe& recipe, AutocastOptions options)
    : exceptions_(std::uncaught_exceptions()) {
  check(!options.amax_group || *options.amax_group, ErrorCode::invalid_argument, "autocast",
        "amax_group is an empty function; leave the pointer null where there is no group");
  Stack<AutocastState>& stack = autocasts();
  AutocastState state{
      .enabled = options.enabled,
      .calibrating = options.calibrating && !options.enabled,
      .recipe = std::make_shared<const Recipe>(recipe),
      .amax_group = std::move(options.amax_group),
      .region = stack.empty() ? std::make_shared<Region>() : stack.back().state.region};
  stack.push_back({this, std::move(state)});
}

Autocast::~Autocast() noexcept(false) {
  if (left_) return;
  const bool failed = std::uncaught_exceptions() > exceptions_;
  try {
    leave(failed);
  } catch (...) {
    if (!failed) throw;  // else the exception under way is the one to hear of
  }
}

void Autocast::leave(bool failed) {
  if (left_) return;
  const AutocastState state = popped(autocasts(), this, "autocast");
  left_ = true;
  if (!autocasts().empty()) return;
  if (failed) {
    state.region->fail_forward();
  } else {
    state.region->end_forward();
  }
}

QuantizedModelInit::QuantizedModelInit(const Recipe& recipe, ModelInitOptions options) {
  ModelInitState state{.enabled = options.enabled,
                       .preserve_high_precision_init_val = options.preserve_high_precision_init_val,
                       .recipe = std::make_shared<const Recipe>(recipe)};
  model_inits().push_back({this, std::move(state)});
}

QuantizedModelInit::~QuantizedModelInit() {
  if (left_) return;
  Stack<ModelInitState>& stack = model_inits();
  if (!stack.empty() && stack.back().scope == this) stack.pop_back();
}

void QuantizedModelInit::leave() {
  if (left_) return;
  (void)popped(model_inits(), this, "quantized_model_init");
  left_ = true;
}

}  // namespace octavo
