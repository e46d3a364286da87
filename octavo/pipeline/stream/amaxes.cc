#include <algorithm>
#include <cmath>

#include "octavo/pipeline/plan/recipe_scaling_internal.h"
#include "octavo/pipeline/stream/amaxes_internal.h"

namespace octavo {

bool needs_amax(const TensorAction& action) {
  return action.quantize && !action.found && has_tensor_scale(action.scaling);
}

void Amaxes::look_at(Window& window, const RowBlock& row_block) {
  const TensorAction& action = plan_.actions[row_block.action];
  const View values = window.read_values(source_, action, row_block);
  NonFiniteFound ignored;  // counted in the quantizing pass
  const float amax =
      checked_amax(values, source_, action, row_block, plan_.options.clamp_non_finite, ignored);
  const std::lock_guard lock(merging_);
  amaxes_[row_block.action] = std::max(amaxes_[row_block.action], amax);
}

std::vector<float> Amaxes::of_groups() const {
  std::vector<float> groups(static_cast<std::size_t>(plan_.groups), 0.0F);
  for (std::size_t i = 0; i < plan_.actions.size(); ++i)
    if (const int group = plan_.actions[i].group; group >= 0) {
      float& most = groups[static_cast<std::size_t>(group)];
      most = std::max(most, amaxes_[i]);
    }
  return groups;
}

void Amaxes::share(const std::vector<float>* given) {
  std::vector<float> groups = of_groups();
  for (std::size_t i = 0; given != nullptr && i < groups.size(); ++i)
    if (!std::isnan((*given)[i])) groups[i] = (*given)[i];
  for (std::size_t i = 0; i < plan_.actions.size(); ++i)
    if (const int group = plan_.actions[i].group; group >= 0)
      amaxes_[i] = groups[static_cast<std::size_t>(group)];
}

}  // namespace octavo
