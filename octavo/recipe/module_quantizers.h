// ModuleQuantizers: the quantizers of a module for forward and backward, and the rules for a recipe
// that changes or does not fit its weights. Modules of every front end use this class, so the rules
// are in one place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/recipe/quantizer_set.h"
#include "octavo/recipe/recipe.h"

namespace octavo {

// Receives each text once per module. It may throw (a warning raised as an error): then nothing has
// changed, and the text is repeated next time.
using WarningHook = std::function<void(std::string_view message)>;

// Weights that are codes fit the recipe they were made for, and those of its class that quantize
// weights the same way. Throws Error(unsupported) otherwise:
//   Recipe mismatch for Linear.weight: Weight was initialized with MXFP8BlockScaling, but current
//   recipe is DelayedScaling. ...
// `parameter` is "Linear.weight".
OCTAVO_API void check_weight_recipe(std::string_view parameter, const Recipe& made_with,
                                    const Recipe& current);

// "Recipe type changed from DelayedScaling to MXFP8BlockScaling. Replacing quantizers for Linear."
// Within one class: "Recipe changed from (...) to (...). ..." with the recipes as they print.
[[nodiscard]] OCTAVO_API std::string recipe_change_text(const Recipe& from, const Recipe& to,
                                                        std::string_view module);

// "Loaded state of DelayedScaling is not used by MXFP8BlockScaling in Linear. ..."
[[nodiscard]] OCTAVO_API std::string unused_state_text(const Recipe& current,
                                                       std::string_view module);

struct ModuleQuantizersOptions {
  std::string module_type = "Linear";  // in messages
  std::string role_type = "linear";    // QuantizerRole::module_type, whatever the class is called
  std::string name{};
  std::vector<TensorRole> forward{TensorRole::input, TensorRole::weight, TensorRole::output};
  std::vector<TensorRole> backward{TensorRole::grad_output, TensorRole::grad_input};  // or none
  MakeTensor make{};  // memory for state, see QuantizerSetOptions
  WarningHook warn{};
  std::uint64_t seed = 0;  // of stochastic rounding; a module's name goes into it as well
};

// Threads that share a module are serialized by a recursive mutex: lock() is held for a whole
// forward and for a whole backward, and the functions below take it themselves where they change
// something. The hooks (warn, make, a recipe's own functions) are called while it is held. So a
// caller that holds a lock that a hook needs, such as the GIL, must release it before it calls
// lock().
class OCTAVO_API ModuleQuantizers {
 public:
  explicit ModuleQuantizers(ModuleQuantizersOptions options = {});
  // Copies share quantizers, and therefore the mutex.
  ModuleQuantizers(const ModuleQuantizers&) = default;
  ModuleQuantizers& operator=(const ModuleQuantizers&) = default;

  using SharedMutex = std::shared_ptr<std::recursive_mutex>;
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() const {
    return std::unique_lock(*mutex_);
  }
  [[nodiscard]] const SharedMutex& mutex() const {
    return mutex_;
  }  // for a backward that comes later

  // Before the arithmetic of a forward. The first time, or where the recipe is another than the
  // last one, quantizers are made; a change is a warning first. State goes on only within a class
  // and format. Returns true if they are new: codes from older quantizers must not be reused.
  // `fits`, if given, checks the quantizers of forward first and may throw: then nothing has
  // changed. A change that was `requested` is no news. `stream`: that of the call, on which state
  // is made.
  bool use(const Recipe& recipe, const std::function<void(const QuantizerSet&)>& fits = {},
           bool requested = false, void* stream = nullptr);

  // Null before the first use, and where there are no roles. A forward saves those of its backward.
  // These do not take lock().
  [[nodiscard]] std::shared_ptr<QuantizerSet> forward() const { return set(Direction::forward); }
  [[nodiscard]] std::shared_ptr<QuantizerSet> backward() const { return set(Direction::backward); }
  // By "scaling_fwd" or "scaling_bwd".
  [[nodiscard]] std::shared_ptr<QuantizerSet> at(std::string_view key) const;

  [[nodiscard]] const std::string& module_type() const { return options_.module_type; }
  // State of delayed scaling was loaded, and a forward runs under this recipe, which has none. A
  // warning, once.
  void warn_unused_state(const Recipe& current);
  // Through the hook, once.
  void warn(const std::string& message);

 private:
  [[nodiscard]] std::shared_ptr<QuantizerSet> make(const Recipe& recipe, Direction direction,
                                                   void* stream) const;
  [[nodiscard]] std::shared_ptr<QuantizerSet> set(Direction direction) const;

  ModuleQuantizersOptions options_;
  SharedMutex mutex_ = std::make_shared<std::recursive_mutex>();
  // Guards the two pointers only: nothing is called, allocated or freed while it is held.
  std::shared_ptr<std::mutex> pointers_ = std::make_shared<std::mutex>();
  std::shared_ptr<QuantizerSet> forward_, backward_;
  std::set<std::string> said_;
};

}  // namespace octavo
