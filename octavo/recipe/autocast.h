// autocast(): the scope of one thread in which a recipe applies.
//   { const auto scope = autocast(MXFP8BlockScaling{});   Tensor y = layer.forward(x); }
// Scopes nest; the inner one decides. A module saves what its backward needs, so backward may run
// outside of the scope and on another thread. The end of the outermost scope updates delayed
// scaling; where an exception ends it, the amaxes of its step are discarded instead.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "octavo/base/macros.h"
#include "octavo/base/reducer.h"
#include "octavo/recipe/recipe.h"
#include "octavo/recipe/region.h"

namespace octavo {

struct AutocastOptions {
  bool enabled = true;
  // Without `enabled`: amaxes are recorded and scales updated, and nothing is quantized.
  bool calibrating = false;
  // Reduces amaxes over the processes that share tensors.
  std::shared_ptr<const Reducer> amax_group{};
};

// The scope that a module runs in. Outside of every scope nothing is enabled and the pointers are
// null.
struct AutocastState {
  bool enabled = false, calibrating = false;
  std::shared_ptr<const Recipe> recipe{};
  std::shared_ptr<const Reducer> amax_group{};
  std::shared_ptr<Region> region{};  // of the outermost scope
};
[[nodiscard]] OCTAVO_API AutocastState current_autocast();

// Set where a scope ended before its inner scopes; other threads may set it.
using LeftLate = std::shared_ptr<std::atomic<bool>>;

class OCTAVO_API Autocast {
 public:
  explicit Autocast(const Recipe& recipe = default_recipe(), AutocastOptions options = {});
  // Throws what leave throws, unless an exception is on its way already.
  ~Autocast() noexcept(false);
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  // For callers that cannot leave by destructor. The thread's state is restored before anything
  // that may fail: a reducer's exception propagates, and no state is left behind. Throws
  // Error(invalid_argument) on another thread than the one that entered, or while an inner scope is
  // open. A second call does nothing.
  void leave(bool failed = false);
  // For a scope that ends where leave throws, for example when a generator or coroutine was paused
  // inside of it: it stays in effect until its inner scopes have ended. On another thread: until
  // that thread next reads its scope, and the amaxes of the step are discarded.
  void leave_later();

 private:
  LeftLate late_ = std::make_shared<std::atomic<bool>>(false);
  int exceptions_;
  bool left_ = false;
};
[[nodiscard]] inline Autocast autocast(const Recipe& recipe = default_recipe(),
                                       AutocastOptions options = {}) {
  return Autocast(recipe, std::move(options));
}

// In this scope, modules created by this thread keep their weights as codes only.
struct ModelInitOptions {
  bool enabled = true;
  bool preserve_high_precision_init_val = false;  // also keep the values it was quantized from
};
struct ModelInitState {
  bool enabled = false, preserve_high_precision_init_val = false;
  std::shared_ptr<const Recipe> recipe{};
};
[[nodiscard]] OCTAVO_API ModelInitState current_model_init();

class OCTAVO_API QuantizedModelInit {
 public:
  explicit QuantizedModelInit(const Recipe& recipe = default_recipe(),
                              ModelInitOptions options = {});
  ~QuantizedModelInit();
  QuantizedModelInit(const QuantizedModelInit&) = delete;
  QuantizedModelInit& operator=(const QuantizedModelInit&) = delete;

  void leave();  // as Autocast's
  void leave_later();

 private:
  LeftLate late_ = std::make_shared<std::atomic<bool>>(false);
  bool left_ = false;
};
[[nodiscard]] inline QuantizedModelInit quantized_model_init(
    const Recipe& recipe = default_recipe(), ModelInitOptions options = {}) {
  return QuantizedModelInit(recipe, options);
}

}  // namespace octavo
