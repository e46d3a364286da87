#include "octavo/recipe/autocast.h"

#include <exception>
#include <utility>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

// The pointer to the scope object that opened a frame is only compared, never dereferenced.
template <typename State>
struct Frame {
  const void* scope;
  LeftLate late;  // its scope ended before inner scopes
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

// Pops frames of scopes that ended early, once no inner scope is left.
template <typename State>
void drop_late(Stack<State>& stack) {
  while (!stack.empty() && *stack.back().late) stack.pop_back();
}

// This thread's frames, the innermost of which holds.
Stack<AutocastState>& open_autocasts() {
  Stack<AutocastState>& stack = autocasts();
  if (stack.empty() || !*stack.back().late) return stack;
  const std::shared_ptr<Region> region = stack.back().state.region;
  drop_late(stack);
  // Ended by another thread, in the middle of this thread's step.
  if (stack.empty()) region->fail_forward();
  return stack;
}
Stack<ModelInitState>& open_model_inits() {
  drop_late(model_inits());
  return model_inits();
}

template <typename State>
State top(const Stack<State>& stack) {
  return stack.empty() ? State{} : stack.back().state;
}

template <typename State>
State popped(Stack<State>& stack, const void* scope, std::string_view op) {
  check(!stack.empty() && stack.back().scope == scope, ErrorCode::invalid_argument, op,
        "got the end of a scope that is not the innermost of this thread; end scopes in the "
        "reverse order of their beginning, on the thread that began them. A generator or coroutine "
        "that pauses inside of a scope lets others begin and end meanwhile: end the scope before "
        "it pauses");
  State state = std::move(stack.back().state);
  stack.pop_back();
  drop_late(stack);
  return state;
}

}  // namespace

AutocastState current_autocast() { return top(open_autocasts()); }
ModelInitState current_model_init() { return top(open_model_inits()); }

Autocast::Autocast(const Recipe& recipe, AutocastOptions options)
    : exceptions_(std::uncaught_exceptions()) {
  check(!options.amax_group || *options.amax_group, ErrorCode::invalid_argument, "autocast",
        "amax_group is an empty function; leave the pointer null where there is no group");
  Stack<AutocastState>& stack = open_autocasts();
  AutocastState state{
      .enabled = options.enabled,
      .calibrating = options.calibrating && !options.enabled,
      .recipe = std::make_shared<const Recipe>(recipe),
      .amax_group = std::move(options.amax_group),
      .region = stack.empty() ? std::make_shared<Region>() : stack.back().state.region};
  stack.push_back({this, late_, std::move(state)});
}

Autocast::~Autocast() noexcept(false) {
  if (left_) return;
  const bool failed = std::uncaught_exceptions() > exceptions_;
  try {
    leave(failed);
  } catch (...) {
    leave_later();
    if (!failed) throw;  // else the exception under way takes precedence
  }
}

void Autocast::leave(bool failed) {
  if (left_) return;
  const AutocastState state = popped(open_autocasts(), this, "autocast");
  left_ = true;
  if (!autocasts().empty()) return;
  if (failed) {
    state.region->fail_forward();
  } else {
    state.region->end_forward();
  }
}

void Autocast::leave_later() {
  if (!left_) *late_ = true;
  left_ = true;
}

QuantizedModelInit::QuantizedModelInit(const Recipe& recipe, ModelInitOptions options) {
  ModelInitState state{.enabled = options.enabled,
                       .preserve_high_precision_init_val = options.preserve_high_precision_init_val,
                       .recipe = std::make_shared<const Recipe>(recipe)};
  open_model_inits().push_back({this, late_, std::move(state)});
}

QuantizedModelInit::~QuantizedModelInit() { leave_later(); }

void QuantizedModelInit::leave() {
  if (left_) return;
  (void)popped(open_model_inits(), this, "quantized_model_init");
  left_ = true;
}

void QuantizedModelInit::leave_later() {
  if (!left_) *late_ = true;
  left_ = true;
}

}  // namespace octavo
