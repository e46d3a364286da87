#include "octavo/pipeline/mix/mix_errors_internal.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <set>
#include <span>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/convert/widen.h"
#include "octavo/pipeline/compare_settings_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/plan_statistics_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo::mix {
namespace {

constexpr std::string_view kOp = "mix";

// Sums of a weight: squared differences and squares, each of a column times its weight.
struct Sums {
  double error2 = 0, value2 = 0;
};

Sums weighted_sums(const View& values, const QuantizedTensor& codes,
                   std::span<const float> weights) {
  const Tensor was = widened(Tensor::adopt(values, std::make_shared<int>(0)));
  const Tensor is = dequantize(codes, DType::f32, {.threads = 1});
  const auto before = was.span<const float>(), after = is.span<const float>();
  Sums out;
  for (std::size_t row = 0; row < before.size(); row += weights.size())
    for (std::size_t col = 0; col < weights.size(); ++col) {
      const auto value = static_cast<double>(before[row + col]),
                 difference = static_cast<double>(after[row + col]) - value,
                 weight = static_cast<double>(weights[col]);
      out.error2 += weight * (difference * difference);
      out.value2 += weight * (value * value);
    }
  return out;
}

// Weighted sums of every weight of a plan, added up by row blocks in their order, whatever thread
// made them when.
class WeightedErrors : public RowBlockWatch {
 public:
  WeightedErrors(const QuantizePlan& plan, const InputStatistics& statistics)
      : plan_(plan), statistics_(statistics), sums_(plan.actions.size()) {}

  void see(std::size_t action, std::size_t ordinal, const View& values,
           const QuantizedTensor& codes) const override {
    const std::string& module = plan_.actions[action].weight.module;
    const Sums sums = weighted_sums(values, codes, statistics_.mean_square(module));
    const std::lock_guard lock(adding_);
    std::vector<Sums>& all = sums_[action];
    if (all.size() <= ordinal) all.resize(ordinal + 1);
    all[ordinal] = sums;
  }

  [[nodiscard]] Sums of(std::size_t action) const {
    Sums out;
    for (const Sums& one : sums_[action]) {
      out.error2 += one.error2;
      out.value2 += one.value2;
    }
    return out;
  }

 private:
  const QuantizePlan& plan_;
  const InputStatistics& statistics_;
  mutable std::mutex adding_;
  mutable std::vector<std::vector<Sums>> sums_;
};

double relative(const Sums& sums) {
  if (sums.value2 == 0) return sums.error2 == 0 ? 0 : INFINITY;
  return std::isfinite(sums.error2) ? sums.error2 / sums.value2 : INFINITY;
}

// Tokens that reached a module, where statistics say it.
std::int64_t tokens_of(const InputStatistics* statistics, const QuantizedWeight& weight) {
  if (statistics == nullptr) return 1;
  const auto range = statistics->range_of(weight.module);
  check(range.has_value(), ErrorCode::invalid_argument, kOp, "'", shown(statistics->name(), 200),
        "' has nothing about '", shown(weight.module, 160),
        "'; expected all that may be quantized; collect statistics anew, or exclude it (option "
        "exclude)");
  const std::int64_t width = weight.shape[weight.shape.rank() - 1];
  check(range->width == width, ErrorCode::invalid_argument, kOp, "'",
        shown(statistics->name(), 200), "' has ", range->width, " channels for '",
        shown(weight.module, 160), "', and its weight has ", width,
        "; expected statistics of this model");
  if (range->rows > 0)
    for (const float square : statistics->mean_square(weight.module))
      check(std::isfinite(square) && square >= 0.0F, ErrorCode::invalid_argument, kOp, "'",
            shown(statistics->name(), 200), "' has an E[x^2] of ", square, " for '",
            shown(weight.module, 160),
            "'; expected finite numbers that are not negative; collect it again");
  return range->rows;
}

// The relative squared error of every action of a plan.
std::vector<double> errors_of(const CheckpointReader& source, const QuantizePlan& plan,
                              const QuantizeCheckpointOptions& options) {
  const InputStatistics* const statistics = options.plan.statistics.get();
  QuantizeCheckpointOptions one = options;
  std::unique_ptr<WeightedErrors> weighted;
  if (statistics != nullptr) {
    for (const TensorAction& action : plan.actions)
      if (action.quantize) (void)tokens_of(statistics, action.weight);
    weighted = std::make_unique<WeightedErrors>(plan, *statistics);
    one.watch = weighted.get();
  }
  one.measure = statistics == nullptr;
  const std::vector<ActionResult> results = stream_checkpoint(
      source, plan, one, {.folder = nullptr, .file = {}, .source = source_identity(source)});
  std::vector<double> out(plan.actions.size(), 0);
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    if (!plan.actions[i].quantize) continue;
    if (weighted) {
      out[i] = relative(weighted->of(i));
    } else {
      const ErrorMetrics metrics = results[i].error.metrics();
      out[i] = relative({metrics.sums.error2, metrics.sums.value2});
    }
  }
  return_freed_memory();
  return out;
}

// The errors of the units that have this recipe, from those of a plan's actions.
void fill_in(const QuantizePlan& plan, const std::vector<double>& errors,
             const InputStatistics* statistics, std::size_t recipe, Units& units) {
  std::map<std::size_t, std::vector<std::size_t>> actions;  // of a tensor
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    if (plan.actions[i].quantize) actions[plan.actions[i].tensor].push_back(i);
  for (Unit& unit : units.units) {
    if (!unit.choices[recipe]) continue;
    struct Alike {
      double error = 0, tokens = 0, plain = 0, count = 0;
    };
    std::map<std::string, Alike> matrices;
    for (const std::size_t tensor : unit.tensors)
      for (const std::size_t i : actions[tensor]) {
        const auto tokens = static_cast<double>(tokens_of(statistics, plan.actions[i].weight));
        Alike& one = matrices[alike_module(plan.actions[i].weight.module)];
        if (tokens > 0) one.error += tokens * errors[i];
        one.tokens += tokens;
        one.plain += errors[i];
        one.count += 1;
      }
    double sum = 0;
    for (const auto& [module, one] : matrices)
      sum += one.tokens > 0 ? one.error / one.tokens : one.plain / one.count;
    // What cannot be said, of NaN and Inf, is no choice.
    if (std::isfinite(sum))
      unit.choices[recipe]->error = sum;
    else
      unit.choices[recipe].reset();
  }
}

}  // namespace

std::int64_t matrices_of(const Units& units) {
  std::int64_t count = 0;
  for (const Unit& unit : units.units) {
    std::set<std::string> modules;
    for (const QuantizePlan* const plan : units.plans) {
      if (plan == nullptr || !modules.empty()) continue;
      const std::set<std::size_t> tensors(unit.tensors.begin(), unit.tensors.end());
      for (const TensorAction& action : plan->actions)
        if (action.quantize && tensors.contains(action.tensor))
          modules.insert(alike_module(action.weight.module));
    }
    count += static_cast<std::int64_t>(modules.size());
  }
  return count;
}

void measure_units(const CheckpointReader& source, const QuantizeCheckpointOptions& options,
                   Units& units) {
  const auto start = std::chrono::steady_clock::now();
  // A plan may be that of several recipes.
  std::vector<const QuantizePlan*> plans;
  for (const QuantizePlan* const plan : units.plans)
    if (plan != nullptr && std::find(plans.begin(), plans.end(), plan) == plans.end())
      plans.push_back(plan);
  for (std::size_t p = 0; p < plans.size(); ++p) {
    QuantizeCheckpointOptions one = options;
    one.on_progress = part_of_progress(options.on_progress, p, plans.size(), start);
    const std::vector<double> errors = errors_of(source, *plans[p], one);
    for (std::size_t recipe = 0; recipe < units.plans.size(); ++recipe)
      if (units.plans[recipe] == plans[p])
        fill_in(*plans[p], errors, options.plan.statistics.get(), recipe, units);
  }
}

}  // namespace octavo::mix
