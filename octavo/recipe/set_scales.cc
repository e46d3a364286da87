// Scales of a QuantizerSet that are not what its last step made: of first values, of inference, of
// an earlier forward or backward.
#include <utility>

#include "octavo/base/error.h"
#include "octavo/recipe/quantizer_set.h"
#include "octavo/recipe/state_memory_internal.h"

namespace octavo {

// By the usual rule, on the device of the state: what a step does, for one column.
void QuantizerSet::seed(TensorRole role, const View& values, const QuantizeOptions& options) {
  if (!has_state()) return;
  const auto held = held_state();
  const std::size_t slot = slot_of(role);
  if (!to_seed_[slot]) return;
  Quantizer& quantizer = *quantizers_[slot];
  quantizer.calibrate(values, options);
  const auto of_slot = [&](const Tensor& tensor) { return state_element(tensor, slot); };
  DelayedState column{.history = history_.view(),
                      .inv_scale = of_slot(inv_scale_),
                      .scale = of_slot(scale_),
                      .calls = {},
                      .last = of_slot(last_)};
  column.history.data = static_cast<float*>(column.history.data) + slot;
  column.history.shape[1] = 1;
  DelayedRule now = rule();
  now.interval = 1;
  update_delayed(column, now, options.stream);
  to_seed_[slot] = false;
}

void QuantizerSet::fit_scale(TensorRole role, const View& values, const Tensor& into,
                             const QuantizeOptions& options) const {
  View window = state_element(into, 1);
  window.shape = {1, 1};
  window.strides = {sizeof(float), sizeof(float)};
  const DelayedState alone{
      .history = window, .inv_scale = state_element(into, 0), .scale = {}, .calls = {}};
  reset_delayed(alone, options.stream);
  Float8Quantizer({.inv_scale = alone.inv_scale,
                   .amax = state_element(into, 1),
                   .format = recipe_.format_of(role)})
      .calibrate(values, options);
  DelayedRule now = rule();
  now.interval = 1;
  update_delayed(alone, now, options.stream);
}

void QuantizerSet::copy_scale(TensorRole role, const Tensor& into, void* stream) const {
  const View from = state_element(inv_scale_, slot_of(role));
  const Exec exec{.device = from.device, .stream = stream};
  const auto held = held_state();
  copy_memory(exec, into.view().data, from.data, sizeof(float));
}

Float8Quantizer QuantizerSet::with_scale(TensorRole role, const Tensor& inv_scale) const {
  return Float8Quantizer({.inv_scale = state_element(inv_scale, 0),
                          .amax = state_element(history_, slot_of(role)),
                          .format = recipe_.format_of(role)});
}

ScalesOfForward::ScalesOfForward(QuantizerSet& set, ForwardScales* kept, void* stream)
    : set_(set), stream_(stream) {
  if (kept == nullptr || !set.has_state()) return;
  held_ = set.held_state();
  std::vector<float> own = read_state(set.inv_scale().view(), stream);
  if (kept->inv_scale.empty()) {
    kept->inv_scale = std::move(own);
    if (set.has_seeds_to_come()) seeded_ = kept;
    return;
  }
  check(kept->inv_scale.size() == own.size(), ErrorCode::invalid_argument, "QuantizerSet", "got ",
        kept->inv_scale.size(), " scales of an earlier forward for ", own.size(), " slots");
  write_state(set.inv_scale(), kept->inv_scale, stream);
  own_ = std::move(own);
}

ScalesOfForward::~ScalesOfForward() {
  try {
    if (!own_.empty()) write_state(set_.inv_scale(), own_, stream_);
    if (seeded_ != nullptr) seeded_->inv_scale = read_state(set_.inv_scale().view(), stream_);
  } catch (...) {  // a failing device was reported by the call itself
  }
}

}  // namespace octavo
