#include "octavo/model/gptq/planned_weights_internal.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::gptq_detail {

PlannedWeights::PlannedWeights(const CheckpointReader& source, const QuantizePlan& plan)
    : source_(source), plan_(plan) {
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    const TensorAction& action = plan.actions[i];
    if (action.quantize && !action.found && action.part.matrix < 0 &&
        action.weight.shape.rank() == 2)
      by_module_[action.weight.module] = i;
  }
}

const TensorAction* PlannedWeights::find(const std::string& module) const {
  const auto at = by_module_.find(module);
  return at == by_module_.end() ? nullptr : &plan_.actions[at->second];
}

std::size_t PlannedWeights::index_of(const TensorAction& action) const {
  return static_cast<std::size_t>(&action - plan_.actions.data());
}

View PlannedWeights::read_all(std::size_t index, float& amax) {
  const TensorAction& action = plan_.actions[index];
  const RowBlock all{index, 0, 0, action.weight.shape[0]};
  const View values = window_.read_values(source_, action, all);
  NonFiniteFound ignored;  // the pipeline counts them
  amax = checked_amax(values, source_, action, all, plan_.options.clamp_non_finite, ignored);
  return values;
}

View PlannedWeights::read(const TensorAction& action) {
  float ignored = 0;
  read_.insert(index_of(action));
  return read_all(index_of(action), ignored);
}

float PlannedWeights::amax(const TensorAction& action) {
  const std::size_t own = index_of(action);
  const std::size_t key =
      action.group >= 0 ? static_cast<std::size_t>(action.group) : plan_.actions.size() + own;
  if (const auto known = amaxes_.find(key); known != amaxes_.end()) return known->second;
  float most = 0;
  for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
    const bool shares =
        action.group >= 0 && plan_.actions[i].quantize && plan_.actions[i].group == action.group;
    if (i != own && !shares) continue;
    float amax = 0;
    (void)read_all(i, amax);
    most = std::max(most, amax);
  }
  return amaxes_[key] = most;
}

std::int64_t PlannedWeights::rows_of(const std::string& module) const {
  const auto& shape = source_.at(module + ".weight").entry->shape;
  check(shape.size() == 2, ErrorCode::unsupported, "gptq", "'", shown(module, 200),
        "' is no matrix; expected a decoder of plain Linears");
  return static_cast<std::int64_t>(shape[0]);
}

std::vector<std::string> PlannedWeights::unread() const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < plan_.actions.size(); ++i)
    if (plan_.actions[i].quantize && !read_.contains(i))
      out.push_back(plan_.actions[i].weight.name);
  return out;
}

}  // namespace octavo::gptq_detail
