#include "octavo/pipeline/make_report_internal.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/plan/name_expression_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/plan/target_alternatives_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"
#include "octavo/report/expected_error_internal.h"

namespace octavo {
namespace {

constexpr std::size_t kAdvisedTogether = 1024, kReturnedAfter = 16384;

// The data of an action that a report needs; the actions themselves are three times as large.
struct Planned {
  std::size_t tensor = 0;
  bool quantize = false;
  std::size_t scaling = 0;  // index into Reporting::scalings_
  DType source = DType::bf16;
  std::uint64_t bytes_after = 0;
  Shape shape{};
  std::string name{}, preset{}, why{};
};

class Reporting {
 public:
  Reporting(const CheckpointReader& source, QuantizePlan& plan, std::vector<ActionResult>& results,
            bool measure, int threads)
      : source_(source),
        results_(results),
        measure_(measure),
        threads_(threads == 0 ? available_threads() : threads),
        target_(plan.options.target) {
    planned_.reserve(plan.actions.size());
    for (TensorAction& action : plan.actions) planned_.push_back(take(action));
    plan.actions = std::vector<TensorAction>();
    plan.model.weights = std::vector<QuantizedWeight>();
    return_freed_memory();  // also of the files and their progress record
    order_.resize(planned_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return natural_less(planned_[a].name, planned_[b].name);
    });
    find_shown();
  }

  void run(CheckpointReport& report) {
    WorkLoop advising(threads_, 0, {}, false);
    std::size_t looked_at = 0;
    error_estimates_.resize(measure_ ? order_.size() : 0);
    // Computed in parallel: a fraction of a millisecond each, and there may be thousands.
    const auto look = [&] {
      advising.run(report.tensors.size() - looked_at, [&](int, std::size_t i) {
        const std::size_t at = looked_at + i;
        TensorReport& tensor = report.tensors[at];
        if (!tensor.measured) return;
        error_estimates_[at] = error_estimate_of(tensor);
        if (!shown_[order_[at]]) drop_histograms(tensor);
      });
      looked_at = report.tensors.size();
    };
    TargetAlternatives alternatives(source_, target_);
    ExpectedErrors expected;
    report.tensors.reserve(order_.size());
    for (const std::size_t i : order_) {
      report.tensors.push_back(report_of(planned_[i], results_[i]));
      if (TensorReport& tensor = report.tensors.back(); tensor.measured) {
        const Scaling& scaling = scalings_[planned_[i].scaling];
        tensor.could_have = alternatives.of({.name = tensor.name,
                                             .module = tensor.module,
                                             .shape = planned_[i].shape,
                                             .source = planned_[i].source,
                                             .scaling = scaling});
        const ExpectedError normal = expected.of(scaling, tensor.shape);
        tensor.expected_sqnr = normal.sqnr;
        tensor.expected_cosine = normal.cosine;
      }
      results_[i].error = TensorError();
      if (report.tensors.size() - looked_at == kAdvisedTogether) look();
      if (report.tensors.size() % kReturnedAfter == 0) return_freed_memory();
    }
    look();
    if (measure_) advise(report);
    note_non_finite(report);
  }

 private:
  Planned take(TensorAction& action) {
    const safetensors::TensorEntry& entry = *source_.tensors()[action.tensor].entry;
    Planned out{.tensor = action.tensor, .quantize = action.quantize};
    out.bytes_after = bytes_after(action);
    out.name = action.quantize ? std::move(action.weight.name) : entry.name;
    out.preset = std::move(action.preset);
    out.why = std::move(action.why);
    out.shape = action.weight.shape;
    out.source = action.weight.source;
    const auto found = std::find(scalings_.begin(), scalings_.end(), action.weight.scaling);
    out.scaling = static_cast<std::size_t>(found - scalings_.begin());
    if (found == scalings_.end()) scalings_.push_back(action.weight.scaling);
    action.outputs = std::vector<DialectTensor>();
    return out;
  }

  // Selects the actions that keep their histograms.
  void find_shown() {
    std::vector<std::size_t> measured;
    std::vector<double> sqnrs;
    for (const std::size_t i : order_) {
      if (!measure_ || !planned_[i].quantize) continue;
      measured.push_back(i);
      sqnrs.push_back(results_[i].error.metrics().sqnr);
    }
    const std::vector<bool> shown = with_histograms(sqnrs);
    shown_.resize(planned_.size());
    for (std::size_t k = 0; k < measured.size(); ++k) shown_[measured[k]] = shown[k];
  }

  [[nodiscard]] TensorReport report_of(Planned& planned, const ActionResult& result) const {
    const safetensors::TensorEntry& entry = *source_.tensors()[planned.tensor].entry;
    TensorReport out;
    out.name = planned.name;
    out.module = std::string(module_of(out.name));
    out.shape.assign(entry.shape.begin(), entry.shape.end());
    out.source = safetensors::stored_name(entry.type);
    out.why = std::move(planned.why);
    out.bytes_before = entry.nbytes();
    out.bytes_after = planned.bytes_after;
    if (!planned.quantize) return out;
    const Shape& shape = planned.shape;
    out.shape.assign(shape.sizes().begin(), shape.sizes().end());
    out.source = dtype_name(planned.source);
    out.bytes_before = static_cast<std::uint64_t>(element_count(shape)) *
                       static_cast<std::uint64_t>(element_bytes(planned.source));
    out.preset = planned.preset;
    out.scaling = describe(scalings_[planned.scaling]);
    out.measured = measure_;
    if (!measure_) return out;
    out.metrics = result.error.metrics();
    out.results = result.error.result_values();
    out.metrics.bits_per_value =
        8.0 * static_cast<double>(out.bytes_after) / static_cast<double>(element_count(shape));
    const ExponentCounts& counts = result.error.scale_counts();
    out.scale_histogram.assign(counts.begin(), counts.end());
    return out;
  }

  // Tensors that servers load as one have one recipe, and so one advice; an option names the
  // tensors of the source, of which a split stack is one.
  void advise(CheckpointReport& report) const {
    std::vector<TensorReport>& tensors = report.tensors;
    std::map<std::string, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const TensorReport& tensor = tensors[i];
      if (!tensor.measured) continue;
      std::string key = is_for_servers(target_) ? group_key(tensor.module) : std::string();
      if (key.empty()) key = text("\n", source_name(i));
      groups[text(key, "\n", tensor.preset)].push_back(i);
    }
    const NameExpressions expressions(source_names());
    // By whether a tensor is far below normal, and by "fp8-block instead of nvfp4".
    std::map<std::pair<bool, std::string>, std::vector<std::size_t>> alike;
    std::vector<ErrorEstimate> together;
    for (const auto& [key, members] : groups) {
      together.clear();
      for (const std::size_t i : members) together.push_back(error_estimates_[i]);
      const std::string advice = advice_for(tensors[members.front()].preset, together);
      if (advice.empty()) continue;
      const std::string option = option_for(expressions, advice, members);
      const bool far = std::any_of(members.begin(), members.end(), [&](std::size_t i) {
        return order_of(tensors[i]) <= tensors[i].expected_sqnr - kFarFromNormal;
      });
      std::vector<std::size_t>& all = alike[{far, advice.substr(0, advice.find(" gains "))}];
      for (const std::size_t i : members) {
        tensors[i].advice = advice;
        tensors[i].recipe_for = option;
        all.push_back(i);
      }
    }
    for (const auto& [key, members] : alike) {
      const std::size_t worst =
          *std::min_element(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
            return std::pair(order_of(tensors[a]), a) < std::pair(order_of(tensors[b]), b);
          });
      const std::string& advice = tensors[worst].advice;
      report.advice.push_back({.what = key.second,
                               .tensor = tensors[worst].name,
                               .advice = advice,
                               .tensors = static_cast<std::int64_t>(members.size()),
                               .far_below = key.first,
                               .recipe_for = option_for(expressions, advice, members)});
    }
    std::stable_sort(report.advice.begin(), report.advice.end(),
                     [](const SharedAdvice& a, const SharedAdvice& b) {
                       return std::pair(a.far_below, a.tensors) > std::pair(b.far_below, b.tensors);
                     });
  }

  // `at` is a place in the report.
  [[nodiscard]] const std::string& source_name(std::size_t at) const {
    return source_.tensors()[planned_[order_[at]].tensor].name();
  }
  [[nodiscard]] std::vector<std::string_view> source_names() const {
    std::vector<std::string_view> names;
    for (const StoredTensor& tensor : source_.tensors()) names.push_back(tensor.name());
    return names;
  }
  [[nodiscard]] std::string option_for(const NameExpressions& expressions, std::string_view advice,
                                       const std::vector<std::size_t>& members) const {
    std::set<std::string_view> names;
    for (const std::size_t i : members) names.insert(source_name(i));
    const std::string expression = expressions.of(names);
    return expression.empty() ? "" : text(expression, "=", advised_preset(advice));
  }

  void note_non_finite(CheckpointReport& report) const {
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      const auto& [nan, inf] = std::pair(results_[i].found.nan, results_[i].found.inf);
      if (nan + inf == 0) continue;
      report.notes.push_back(text("tensor '", shown(planned_[i].name, 160), "': ", nan, " NaN and ",
                                  inf, " Inf were ",
                                  planned_[i].quantize ? "clamped" : "copied as they are"));
      if (!planned_[i].quantize) report.copied_non_finite += static_cast<std::int64_t>(nan + inf);
    }
  }

  const CheckpointReader& source_;
  std::vector<ActionResult>& results_;
  bool measure_;
  int threads_;
  Dialect target_;
  std::vector<Planned> planned_;
  std::vector<Scaling> scalings_;
  std::vector<std::size_t> order_;  // natural sort order of names
  std::vector<bool> shown_;
  std::vector<ErrorEstimate> error_estimates_;  // in that order
};

}  // namespace

CheckpointReport make_report(const CheckpointReader& source, QuantizePlan& plan,
                             std::vector<ActionResult>& results, const Provenance& provenance,
                             bool measure, int threads) {
  CheckpointReport report;
  const std::filesystem::path path(source.path());
  report.title = (path.has_filename() ? path : path.parent_path()).filename().string();
  report.recipe = plan.options.recipe;
  report.target = name_of(plan.options.target);
  report.provenance = provenance;
  report.bytes_before = plan.bytes_before;
  report.bytes_after = plan.bytes_after;
  report.bits_per_weight = plan.bits_per_weight;
  report.notes = plan.notes;
  Reporting(source, plan, results, measure, threads).run(report);
  return report;
}

}  // namespace octavo
