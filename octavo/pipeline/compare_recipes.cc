#include "octavo/pipeline/compare_recipes.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/checkpoint/verify/loader_verdict.h"
#include "octavo/checkpoint/verify/verify_planned_internal.h"
#include "octavo/pipeline/compare_settings_internal.h"
#include "octavo/pipeline/make_report_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

void find_loaders(const CheckpointReader& source, const QuantizePlan& plan,
                  RecipeOutcome& outcome) {
  if (!is_for_servers(plan.options.target) || plan.model.weights.empty()) return;
  const std::vector<Finding> findings = verify_planned(source, plan.options.target, plan.model);
  const Verdict verdict = verdict_of(planned_loaders(), findings);
  outcome.loads = verdict.loads;
  for (std::size_t i = 0; i < verdict.fails.size(); ++i)
    outcome.does_not_load.emplace_back(verdict.fail_names[i], verdict.fails[i]->message);
}

void measure(const CheckpointReader& source, QuantizePlan& plan,
             const QuantizeCheckpointOptions& options, RecipeOutcome& outcome) {
  auto results = stream_checkpoint(
      source, plan, options, {.folder = nullptr, .file = {}, .source = source_identity(source)});
  outcome.report = make_report(source, plan, results, {}, true, options.threads);
  for (TensorReport& tensor : outcome.report.tensors) drop_histograms(tensor);
  return_freed_memory();
}

}  // namespace

OnProgress part_of_progress(const OnProgress& all, std::size_t index, std::size_t count,
                            std::chrono::steady_clock::time_point start) {
  if (!all) return {};
  return [=](const Progress& progress) {
    Progress whole = progress;
    whole.bytes_total = progress.bytes_total * count;
    whole.bytes_done = progress.bytes_total * index + progress.bytes_done;
    whole.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return all(whole);
  };
}

RecipeComparison compare_settings(const std::string& source_path,
                                  const std::vector<NamedSetting>& settings,
                                  const QuantizeCheckpointOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto since = [](std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const CheckpointReader source = open_values(source_path);
  RecipeComparison out;
  const std::filesystem::path path(source_path);
  out.title = (path.has_filename() ? path : path.parent_path()).filename().string();
  out.source = source_path;
  out.target = name_of(options.plan.target);
  out.bytes_before = source.nbytes();
  std::exception_ptr first_refusal;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    RecipeOutcome outcome{.recipe = settings[i].name};
    QuantizeCheckpointOptions one = options;
    one.plan = settings[i].plan;
    one.measure = true;
    one.on_progress = part_of_progress(options.on_progress, i, settings.size(), start);
    QuantizePlan plan;
    const auto begin = std::chrono::steady_clock::now();
    try {
      plan = plan_quantize(source, one.plan);
      find_loaders(source, plan, outcome);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
      if (!first_refusal) first_refusal = std::current_exception();
      outcome.why_not = reason_of(error);
    }
    if (outcome.why_not.empty()) measure(source, plan, one, outcome);
    outcome.seconds = since(begin);
    out.recipes.push_back(std::move(outcome));
  }
  if (std::none_of(out.recipes.begin(), out.recipes.end(),
                   [](const RecipeOutcome& outcome) { return outcome.why_not.empty(); }))
    std::rethrow_exception(first_refusal);
  out.seconds = since(start);
  return out;
}

RecipeComparison compare_recipes(const std::string& source, const std::vector<std::string>& recipes,
                                 const QuantizeCheckpointOptions& options) {
  check(!recipes.empty(), ErrorCode::invalid_argument, kOp,
        "got no recipes to compare; expected at least one, such as fp8-channel");
  std::vector<NamedSetting> settings;
  for (const std::string& recipe : recipes) {
    if (!is_mixed_recipe(recipe)) (void)preset(recipe);  // throws if there is none such
    check(std::count(recipes.begin(), recipes.end(), recipe) == 1, ErrorCode::invalid_argument, kOp,
          "got the recipe '", shown(recipe), "' twice; expected each once");
    settings.push_back({.name = recipe, .plan = options.plan});
    settings.back().plan.recipe = recipe;
  }
  return compare_settings(source, settings, options);
}

}  // namespace octavo
