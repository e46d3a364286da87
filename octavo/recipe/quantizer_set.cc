#include "octavo/recipe/quantizer_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/philox.h"
#include "octavo/exec/place_internal.h"
#include "octavo/recipe/state_memory_internal.h"
#include "octavo/scale/delayed_step.h"

namespace octavo {
namespace {

// Rows of the newest amaxes of an old history, at the end of a new one; row 0 stays row 0.
std::vector<float> refitted(std::span<const float> old, std::int64_t old_length,
                            std::int64_t length, std::int64_t slots) {
  std::vector<float> out(static_cast<std::size_t>(length * slots), 0.0F);
  const auto row = [&](auto data, std::int64_t at) { return data + at * slots; };
  std::copy_n(old.begin(), slots, out.begin());
  for (std::int64_t back = 1; back < std::min(length, old_length); ++back)
    std::copy_n(row(old.begin(), old_length - back), slots, row(out.begin(), length - back));
  return out;
}

bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

// Numbers of a saved part. `wanted` is its shape; the length of a history may be another.
std::vector<float> saved_numbers(const View& saved, const Shape& wanted, std::string_view part,
                                 void* stream) {
  const bool fits = saved.shape.rank() == wanted.rank() && saved.shape[0] >= 1 &&
                    saved.shape[wanted.rank() - 1] == wanted[wanted.rank() - 1] &&
                    saved.data != nullptr;
  if (!fits || saved.dtype != DType::f32 || !is_dense(saved))
    fail(ErrorCode::unsupported, "QuantizerSet", "got a saved ", part, " of shape ",
         to_string(saved.shape), "; expected float32 of ", to_string(wanted));
  return read_state(saved, stream);
}

Tensor checked(Tensor tensor, const Shape& shape) {
  const View& view = tensor.view();
  check(view.data != nullptr && view.dtype == DType::f32 && view.shape == shape && is_dense(view) &&
            !view.read_only,
        ErrorCode::invalid_argument, "QuantizerSet", "memory for state is not float32 of shape ",
        to_string(shape), ", dense and writable");
  return tensor;
}

// What functions of a recipe need. Found when a module meets the recipe: at the end of a step its
// forwards and backwards would have run already.
void check_on_host(Device device) {
  check(device.kind == DeviceKind::cpu, ErrorCode::unsupported, "DelayedScaling",
        "functions for amaxes and scales run on the host, and the state is on ", to_string(device),
        "; use amax_compute_algo max or most_recent");
}

}  // namespace

QuantizerSet::QuantizerSet(const Recipe& recipe, const QuantizerSetOptions& options,
                           const QuantizerSet* before)
    : recipe_(recipe),
      direction_(options.direction),
      roles_(options.roles.begin(), options.roles.end()),
      seed_(options.seed),
      draws_(before != nullptr ? before->draws_ : 0) {
  check(!roles_.empty(), ErrorCode::invalid_argument, "QuantizerSet", "got no roles");
  if (recipe_.delayed()) {
    make_state(options, before);
    return;
  }
  for (const TensorRole role : roles_)
    quantizers_.push_back(make_quantizer(
        recipe_, {std::string(options.module_type), role, std::string(options.name)}));
}

void QuantizerSet::make_state(const QuantizerSetOptions& options, const QuantizerSet* before) {
  const auto slots = static_cast<std::int64_t>(roles_.size());
  const auto* recipe = recipe_.get<DelayedScaling>();
  const std::int64_t length = recipe->amax_history_len;
  void* const stream = options.stream;
  const auto make = [&](const Shape& shape) {
    return checked(options.make ? options.make(value_view(nullptr, DType::f32, shape))
                                : Tensor::values(shape, DType::f32),
                   shape);
  };
  history_ = make({length, slots});
  if (recipe->amax_compute_function || recipe->scaling_factor_compute_algo)
    check_on_host(history_.view().device);
  inv_scale_ = make({slots});
  scale_ = make({slots});
  last_ = make({slots});
  if (recipe->interval > 1) {
    calls_ = make({1});
    write_state(calls_, std::vector<float>{0.0F}, stream);
  }
  reset_delayed(views(), stream);
  const bool goes_on = before != nullptr && before->has_state() && before->roles_ == roles_ &&
                       before->recipe_.format_of(roles_[0]) == recipe_.format_of(roles_[0]);
  if (goes_on) {
    const auto held = before->held_state();
    write_state(inv_scale_, read_state(before->inv_scale_.view(), stream), stream);
    write_state(scale_, read_state(before->scale_.view(), stream), stream);
    const std::int64_t old_length = before->history_.shape()[0];
    write_state(history_,
                refitted(read_state(before->history_.view(), stream), old_length, length, slots),
                stream);
    write_state(last_, read_state(before->last_.view(), stream), stream);
    to_seed_ = before->to_seed_;
  } else {
    to_seed_.assign(roles_.size(), before != nullptr);
  }
  for (std::size_t slot = 0; slot < roles_.size(); ++slot)
    quantizers_.push_back(std::make_shared<Float8Quantizer>(
        Float8Options{.inv_scale = state_element(inv_scale_, slot),
                      .amax = state_element(history_, slot),
                      .format = recipe_.format_of(roles_[slot])}));
}

std::size_t QuantizerSet::slot_of(TensorRole role) const {
  const auto found = std::ranges::find(roles_, role);
  if (found == roles_.end())
    fail(ErrorCode::invalid_argument, "QuantizerSet", name_of(direction_), " has no ",
         name_of(role));
  return static_cast<std::size_t>(found - roles_.begin());
}

Quantizer& QuantizerSet::of(TensorRole role) const { return *quantizers_[slot_of(role)]; }

Quantizer& QuantizerSet::with_new_draws(TensorRole role) {
  Quantizer& quantizer = of(role);
  if (quantizer.scaling().encode.rounding != Rounding::stochastic) return quantizer;
  if (auto* fp4 = dynamic_cast<NVFP4Quantizer*>(&quantizer)) {
    const PhiloxBlock block = philox4x32(seed_, draws_++);
    fp4->set_seed(std::uint64_t{block[0]} << 32 | block[1]);
  }
  return quantizer;
}

DelayedState QuantizerSet::views() const {
  return {.history = history_.view(),
          .inv_scale = inv_scale_.view(),
          .scale = scale_.view(),
          .calls = calls_.owner() != nullptr ? calls_.view() : View{},
          .last = last_.view()};
}

DelayedRule QuantizerSet::rule() const {
  const auto* recipe = recipe_.get<DelayedScaling>();
  return {.format = recipe_.format_of(roles_[0]),
          .policy = recipe->amax_compute_algo,
          .margin = recipe->margin,
          .decay = recipe->amax_ema_decay,
          .interval = recipe->interval};
}

bool QuantizerSet::is_to_seed(TensorRole role) const {
  if (!has_state()) return false;
  const auto held = held_state();
  return to_seed_[slot_of(role)];
}

bool QuantizerSet::has_seeds_to_come() const {
  const auto held = held_state();
  return std::ranges::find(to_seed_, true) != to_seed_.end();
}

std::unique_lock<std::recursive_mutex> QuantizerSet::held_state() const {
  return has_state() ? std::unique_lock(state_mutex_) : std::unique_lock<std::recursive_mutex>();
}

void QuantizerSet::restore(const View& amax_history, const View& inv_scale, void* stream,
                           const View& calls) {
  check(has_state(), ErrorCode::unsupported, "QuantizerSet", "got saved state, and ",
        recipe_.name(), " has none");
  const auto held = held_state();
  std::vector<float> history, factors, reciprocals;
  if (is_given(amax_history))
    history = saved_numbers(amax_history, history_.shape(), "amax_history", stream);
  if (is_given(inv_scale)) factors = saved_numbers(inv_scale, inv_scale_.shape(), "scale", stream);
  for (const float amax : history)
    check(!(amax < 0.0F), ErrorCode::unsupported, "QuantizerSet", "got a saved amax_history with ",
          amax, "; expected magnitudes");
  for (const float factor : factors) {
    check(factor > 0.0F && std::isfinite(factor) && std::isfinite(1.0F / factor),
          ErrorCode::unsupported, "QuantizerSet", "got a saved scale of ", factor,
          "; expected positive, finite numbers");
    reciprocals.push_back(1.0F / factor);
  }
  std::vector<float> counted;
  if (is_given(calls) && calls_.owner() != nullptr) {
    counted = saved_numbers(calls, calls_.shape(), "calls", stream);
    check(counted[0] >= 0.0F && counted[0] <= static_cast<float>(kMaxInterval),
          ErrorCode::unsupported, "QuantizerSet", "got saved calls = ", counted[0],
          "; expected a number of steps");
  }
  if (!history.empty()) {
    std::vector<float> fitted =
        refitted(history, amax_history.shape[0], history_.shape()[0], history_.shape()[1]);
    const auto slots = static_cast<std::ptrdiff_t>(size());
    write_state(last_, {history.end() - slots, history.end()}, stream);
    write_state(history_, fitted, stream);
  }
  if (!counted.empty()) write_state(calls_, counted, stream);
  to_seed_.assign(size(), false);
  if (factors.empty()) return;
  write_state(inv_scale_, factors, stream);
  write_state(scale_, reciprocals, stream);
}

std::vector<float> QuantizerSet::amaxes(void* stream) const {
  if (!has_state()) return {};
  const auto held = held_state();
  View row = history_.view();
  row.shape = {row.shape[1]};
  row.strides = {sizeof(float)};
  return read_state(row, stream);
}

void QuantizerSet::set_amaxes(std::span<const float> amaxes, void* stream) {
  check(amaxes.size() == (has_state() ? size() : 0), ErrorCode::invalid_argument, "QuantizerSet",
        "got ", amaxes.size(), " amaxes for ", size(), " slots");
  const auto held = held_state();
  if (has_state()) write_state(history_, amaxes, stream);
}

void QuantizerSet::update(void* stream, bool due) {
  const auto* recipe = recipe_.get<DelayedScaling>();
  if (recipe == nullptr) return;
  const auto held = held_state();
  DelayedRule rule = this->rule();
  if (due) rule.interval = 1;
  if (recipe->amax_compute_function || recipe->scaling_factor_compute_algo)
    return update_by_functions(*recipe, rule, due);
  DelayedState state = views();
  if (due) state.calls = {};
  update_delayed(state, rule, stream);
}

// The usual update moves the history on, with scales that are discarded; the functions' amaxes go
// through it once more as histories of one row.
void QuantizerSet::update_by_functions(const DelayedScaling& recipe, const DelayedRule& rule,
                                       bool due) {
  const auto slots = static_cast<std::int64_t>(size());
  const std::int64_t length = history_.shape()[0];
  if (!due && calls_.owner() != nullptr) {
    float& calls = calls_.span<float>()[0];
    calls = delayed_count(calls, rule.interval);
    due = calls == 0.0F;
  }
  due |= rule.interval == 1;
  const Tensor found = Tensor::values({1, slots}, DType::f32);
  const Tensor unseen = Tensor::values({slots}, DType::f32);
  const std::span<float> history = history_.span<float>(), inv_scale = inv_scale_.span<float>();
  std::vector<float> next(inv_scale.begin(), inv_scale.end());
  std::vector<float> window(static_cast<std::size_t>(length));
  const auto largest = static_cast<float>(max_value(rule.format));
  for (std::size_t slot = 0; slot < size(); ++slot) {
    float& amax = found.span<float>()[slot];
    amax = history[slot];
    if (amax == 0.0F || !due) continue;  // it has not run, or keeps its scale
    for (std::int64_t i = 0; i < length; ++i)
      window[static_cast<std::size_t>(i)] =
          history[static_cast<std::size_t>((i + 1) % length * slots) + slot];
    if (recipe.amax_compute_function) {
      amax = (*recipe.amax_compute_function)(window);
    } else {
      const DelayedJob job{.length = length, .policy = rule.policy, .decay = rule.decay};
      amax = window_amax(job, {reinterpret_cast<std::byte*>(&history[slot]),
                               slots * static_cast<std::int64_t>(sizeof(float))});
    }
    if (!recipe.scaling_factor_compute_algo) continue;
    next[slot] = (*recipe.scaling_factor_compute_algo)(amax, inv_scale[slot], largest);
    check(next[slot] > 0.0F && std::isfinite(next[slot]) && std::isfinite(1.0F / next[slot]),
          ErrorCode::invalid_argument, "DelayedScaling", "scaling_factor_compute_algo gave ",
          next[slot], "; expected a positive, finite number");
  }
  DelayedRule moving = rule;
  moving.interval = 1;
  update_delayed({.history = history_.view(),
                  .inv_scale = unseen.view(),
                  .scale = {},
                  .calls = {},
                  .last = last_.view()},
                 moving);
  if (!due) return;
  if (!recipe.scaling_factor_compute_algo) {
    DelayedRule newest = moving;
    newest.policy = HistoryPolicy::most_recent;
    return update_delayed({.history = found.view(),
                           .inv_scale = inv_scale_.view(),
                           .scale = scale_.view(),
                           .calls = {}},
                          newest);
  }
  for (std::size_t slot = 0; slot < size(); ++slot) {
    if (next[slot] == inv_scale[slot]) continue;
    inv_scale[slot] = next[slot];
    scale_.span<float>()[slot] = 1.0F / next[slot];
  }
}

}  // namespace octavo
