#include "octavo/model/gptq/planned_weights_internal.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::gptq_detail {
namespace {

constexpr std::int64_t kValuesOfPiece = 1 << 22;  // read at a time where amaxes alone are wanted

}  // namespace

bool is_by_gptq(const TensorAction& action) {
  return action.quantize && !action.found && action.part.matrix < 0 &&
         action.weight.shape.rank() == 2;
}

PlannedWeights::PlannedWeights(const CheckpointReader& source, const QuantizePlan& plan)
    : source_(source), plan_(plan) {
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    const TensorAction& action = plan.actions[i];
    if (is_by_gptq(action)) by_module_[action.weight.module] = i;
  }
}

const TensorAction* PlannedWeights::find(const std::string& module) const {
  const auto at = by_module_.find(module);
  return at == by_module_.end() ? nullptr : &plan_.actions[at->second];
}

std::size_t PlannedWeights::index_of(const TensorAction& action) const {
  return static_cast<std::size_t>(&action - plan_.actions.data());
}

View PlannedWeights::read_rows(std::size_t index, std::int64_t first, std::int64_t count,
                               float& amax) {
  const TensorAction& action = plan_.actions[index];
  const RowBlock rows{index, 0, first, count};
  const View values = window_.read_values(source_, action, rows);
  NonFiniteFound ignored;  // the pipeline counts them
  amax = checked_amax(values, source_, action, rows, plan_.options.clamp_non_finite, ignored);
  return values;
}

View PlannedWeights::read(const TensorAction& action) {
  float ignored = 0;
  read_.insert(index_of(action));
  return read_rows(index_of(action), 0, action.weight.shape[0], ignored);
}

float PlannedWeights::amax_of(std::size_t index) {
  if (const auto known = amaxes_.find(index); known != amaxes_.end()) return known->second;
  const Shape& shape = plan_.actions[index].weight.shape;
  const std::int64_t step =
      std::max<std::int64_t>(1, kValuesOfPiece / std::max<std::int64_t>(1, shape[1]));
  float most = 0;
  for (std::int64_t row = 0; row < shape[0]; row += step) {
    float amax = 0;
    (void)read_rows(index, row, std::min(step, shape[0] - row), amax);
    most = std::max(most, amax);
  }
  return amaxes_[index] = most;
}

float PlannedWeights::amax(const TensorAction& action) {
  float most = amax_of(index_of(action));
  for (std::size_t i = 0; action.group >= 0 && i < plan_.actions.size(); ++i)
    if (plan_.actions[i].quantize && plan_.actions[i].group == action.group)
      most = std::max(most, amax_of(i));
  return most;
}

std::vector<float> PlannedWeights::column_weights(const TensorAction& action) const {
  if (action.scaling.policy != AmaxPolicy::wmse) return {};
  return plan_.options.statistics->mean_square(action.weight.module);
}

void PlannedWeights::check_values() {
  for (const auto& [module, index] : by_module_) (void)amax_of(index);
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
