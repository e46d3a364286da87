// QuantizerSet: the quantizers of one module and one direction, made for a recipe, with their
// state, and the end of a step, when delayed scaling moves that state on. Modules of C++ and of
// other frameworks hold the same objects; the caller chooses the allocator of the state.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/base/reducer.h"
#include "octavo/quant/quantizer.h"
#include "octavo/recipe/recipe.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

enum class Direction : std::uint8_t { forward, backward };
[[nodiscard]] OCTAVO_API std::string_view name_of(Direction direction);  // "scaling_fwd", ..._bwd

// A quantizer without state. Throws Error(invalid_argument) for DelayedScaling, whose quantizers
// need memory, and where a factory gives none.
[[nodiscard]] OCTAVO_API std::shared_ptr<Quantizer> make_quantizer(const Recipe& recipe,
                                                                   const QuantizerRole& role);

struct QuantizerSetOptions {
  Direction direction = Direction::forward;
  std::string_view module_type = "linear", name{};  // of roles
  std::span<const TensorRole> roles{};              // one slot for each, in this order
  MakeTensor make{};  // memory for state: f32, dense; without one, the CPU's
  std::uint64_t seed = 0;
  void* stream = nullptr;  // on which state is initialised, and that of `before` read
};

class OCTAVO_API QuantizerSet {
 public:
  // State begins as reset_delayed leaves it; or, where `before` is of the same class and the
  // element format is the same, as that has it: scales, and as many of the newest amaxes as fit.
  // State that begins after another recipe is seeded: see seed.
  QuantizerSet(const Recipe& recipe, const QuantizerSetOptions& options,
               const QuantizerSet* before = nullptr);

  [[nodiscard]] const Recipe& recipe() const { return recipe_; }
  [[nodiscard]] Direction direction() const { return direction_; }
  [[nodiscard]] const std::vector<TensorRole>& roles() const { return roles_; }
  [[nodiscard]] std::size_t size() const { return quantizers_.size(); }
  [[nodiscard]] Quantizer& at(std::size_t slot) const { return *quantizers_.at(slot); }
  [[nodiscard]] Quantizer& of(TensorRole role) const;
  // The same, with a new seed for stochastic rounding.
  [[nodiscard]] Quantizer& with_new_draws(TensorRole role);

  // Delayed scaling only, else empty: [length, slots], [slots] and [slots], as in DelayedState.
  [[nodiscard]] const Tensor& amax_history() const { return history_; }
  [[nodiscard]] const Tensor& inv_scale() const { return inv_scale_; }
  [[nodiscard]] const Tensor& scale() const { return scale_; }
  // [slots]: the last amax of each tensor, which outlives its step.
  [[nodiscard]] const Tensor& last_amax() const { return last_; }
  // [1]: steps since the last new scale. Empty where the interval is one.
  [[nodiscard]] const Tensor& calls() const { return calls_; }
  [[nodiscard]] bool has_state() const { return recipe_.delayed(); }
  // Lock to hold while a quantizer of the set reads or writes state, because a step may end on
  // another thread. Empty without state. The functions below take it themselves.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> held_state() const;

  // State that was saved, f32 and dense, on this set's device or the host; a part without memory
  // stays as it is. A history of another length gives its newest rows, and row 0. Throws
  // Error(unsupported), before anything is written, for what cannot be this set's state.
  void restore(const View& amax_history, const View& inv_scale, void* stream = nullptr,
               const View& calls = {});

  // After a change of recipe delayed scaling has no history, and a scale of one would flush or
  // saturate. So the first values that come for a role, weights or those of the batch at hand, are
  // their own history: their amax is the newest of it and makes the first scale. Does nothing for a
  // role that has a scale. On a GPU nothing waits.
  void seed(TensorRole role, const View& values, const QuantizeOptions& options = {});
  [[nodiscard]] bool has_seeds_to_come() const;
  [[nodiscard]] bool is_to_seed(TensorRole role) const;
  // For such a role in inference, which changes no state: the scale that seed would make of these
  // values, into the first of two f32 in `into`, on their device. The second one is scratch.
  void fit_scale(TensorRole role, const View& values, const Tensor& into,
                 const QuantizeOptions& options = {}) const;
  // The scale there is now, into one f32 in `into`.
  void copy_scale(TensorRole role, const Tensor& into, void* stream = nullptr) const;
  // The quantizer of a role by another scale, the first f32 of `inv_scale`. It records amaxes as
  // that of the set does.
  [[nodiscard]] Float8Quantizer with_scale(TensorRole role, const Tensor& inv_scale) const;

  // This step's amaxes, row 0 of the history, on the host.
  [[nodiscard]] std::vector<float> amaxes(void* stream = nullptr) const;
  void set_amaxes(std::span<const float> amaxes, void* stream = nullptr);
  // The step ends: update_delayed, or the recipe's own functions. Nothing without state. `due`: new
  // scales whatever the interval says.
  void update(void* stream = nullptr, bool due = false);

 private:
  void make_state(const QuantizerSetOptions& options, const QuantizerSet* before);
  void update_by_functions(const DelayedScaling& recipe, const DelayedRule& rule, bool due);
  [[nodiscard]] DelayedState views() const;
  [[nodiscard]] DelayedRule rule() const;
  [[nodiscard]] std::size_t slot_of(TensorRole role) const;

  Recipe recipe_;
  Direction direction_;
  std::vector<TensorRole> roles_;
  std::vector<std::shared_ptr<Quantizer>> quantizers_;
  Tensor history_, inv_scale_, scale_, last_, calls_;
  std::vector<bool> to_seed_;  // of the slots
  std::uint64_t seed_, draws_;
  // Recursive, since functions of a recipe may do anything, also end a step.
  mutable std::recursive_mutex state_mutex_;
};

// For a recomputed forward (activation checkpointing): the scales of the first forward.
struct ForwardScales {
  std::vector<float> inv_scale{};  // of the slots; empty until a forward with state has run
  bool again = false;              // this is the recomputed forward, which records no amaxes
};
[[nodiscard]] inline bool is_again(const ForwardScales* scales) {
  return scales != nullptr && scales->again;
}

// RAII: while it lasts, a set with state uses the saved scales; where none are saved, it saves the
// current ones. It holds the state lock. On a device it synchronizes.
class OCTAVO_API ScalesOfForward {
 public:
  ScalesOfForward(QuantizerSet& set, ForwardScales* kept, void* stream = nullptr);
  ~ScalesOfForward();
  ScalesOfForward(const ScalesOfForward&) = delete;
  ScalesOfForward& operator=(const ScalesOfForward&) = delete;

 private:
  QuantizerSet& set_;
  void* stream_;
  std::unique_lock<std::recursive_mutex> held_{};
  std::vector<float> own_{};  // to be put back
  ForwardScales* seeded_{};   // gets the scales again, once they are seeded
};

// A set that ran in a step, and the reducer of its amaxes.
struct StepEntry {
  std::shared_ptr<QuantizerSet> set;
  std::shared_ptr<const Reducer> amax_group{};
  void* stream = nullptr;
};
// All amaxes of a group are reduced in one call, then every set is updated. Where a reducer throws,
// or gives a negative number or NaN, which quantizers never record, nothing is changed.
OCTAVO_API void end_step(std::span<const StepEntry> entries);
// The step failed: its amaxes are discarded.
OCTAVO_API void forget_step(std::span<const StepEntry> entries);

}  // namespace octavo
