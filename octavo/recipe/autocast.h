// Where a recipe holds: a scope of one thread.
//   { const auto scope = autocast(MXFP8BlockScaling{});   Tensor y = layer.forward(x); }
// Scopes nest; the inner one decides. A module takes what it needs for its backward along, so that
// may run outside of the scope and on another thread. When the outermost scope ends, delayed
// scaling moves on; when it ends by an exception, the amaxes of its step are forgotten instead.
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
  // Without `enabled`: amaxes are gathered and scales made, and nothing is quantized.
  bool calibrating = false;
  std::shared_ptr<const Reducer> amax_group{};  // who shares tensors with this process
};

// What a module finds. Outside of every scope nothing is enabled and the pointers are null.
struct AutocastState {
  bool enabled = false, calibrating = false;
  std::shared_ptr<const Recipe> recipe{};
  std::shared_ptr<const Reducer> amax_group{};
  std::shared_ptr<Region> region{};  // of the outermost scope
};
[[nodiscard]] OCTAVO_API AutocastState current_autocast();

// A scope that has ended out of its turn; other threads may say so.
using LeftLate = std::shared_ptr<std::atomic<bool>>;

class OCTAVO_API Autocast {
 public:
  explicit Autocast(const Recipe& recipe = default_recipe(), AutocastOptions options = {});
  // Throws what leave throws, unless an exception is on its way already.
  ~Autocast() noexcept(false);
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  // For those who cannot leave by scope. The thread's state is restored before anything that may
  // fail: a reducer's exception comes out, and nothing stays behind. Throws
  // Error(invalid_argument) on another thread than the one that entered, or while an inner scope is
  // open. A second call does nothing.
  void leave(bool failed = false);
  // For one that is to end where leave throws, as when a generator or coroutine was paused inside
  // of it: it holds until the scopes inside of it have ended. On another thread: until that asks
  // for its scope next, and the amaxes of the step are forgotten.
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

// While this scope lasts, modules of this thread keep their weights quantized, and only that.
struct ModelInitOptions {
  bool enabled = true;
  bool preserve_high_precision_init_val = false;  // beside it, the values it was made from
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
