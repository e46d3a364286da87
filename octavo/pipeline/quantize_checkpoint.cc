#include "octavo/pipeline/quantize_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/freed_memory_internal.h"
#include "octavo/base/thread_pool.h"
#include "octavo/base/whole_file.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/shard_index.h"
#include "octavo/pipeline/finished_folder_internal.h"
#include "octavo/pipeline/folder_files_internal.h"
#include "octavo/pipeline/output_files_internal.h"
#include "octavo/pipeline/output_folder_internal.h"
#include "octavo/pipeline/provenance_internal.h"
#include "octavo/pipeline/stream_internal.h"
#include "octavo/pipeline/target_alternatives_internal.h"
#include "octavo/pipeline/work_loop_internal.h"
#include "octavo/version.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

// Everything that the bytes depend on besides the source.
std::string options_text(const QuantizePlan& plan) {
  const QuantizePlanOptions& of = plan.options;
  std::string out = text(version(), " ", of.recipe, " ", name_of(of.target), " format=", of.format,
                         " rule=", of.scale_rule, " arith=", of.arith, " policy=", of.scale_policy,
                         " scale=", of.scale_format, " share=", of.share, " bf16=", of.bf16_scales,
                         " clamp=", of.clamp_non_finite, " shard=", of.shard_bytes);
  for (const std::string& name : of.include) out += text(" include=", name);
  for (const std::string& name : of.exclude) out += text(" exclude=", name);
  for (const auto& [name, recipe] : of.recipe_for) out += text(" ", name, "=>", recipe);
  out += text(" files=", plan.files.size(), " bytes=", plan.bytes_after);
  return out;
}

Provenance provenance_of(const CheckpointReader& source, const QuantizePlan& plan,
                         const std::vector<ActionResult>& results) {
  Provenance out{{"version", version()},
                 {"recipe", plan.options.recipe},
                 {"target", std::string(name_of(plan.options.target))}};
  if (!plan.model.weights.empty()) {
    const Scaling& scaling = plan.model.weights.front().scaling;
    out.emplace_back("scaling", describe(scaling));
    out.emplace_back("rule", name_of(scaling.scale.rule));
    out.emplace_back("arith", name_of(scaling.scale.arith));
    out.emplace_back("policy", name_of(scaling.policy));
    out.emplace_back("scale_rounding", plan.options.bf16_scales ? "bf16" : "none");
  }
  out.emplace_back("options_hash", hex_of(text_hash(options_text(plan))));
  out.emplace_back("source_hash", source_hash(source, plan, results));
  return out;
}

const std::string& reported_name(const CheckpointReader& source, const TensorAction& action) {
  return action.quantize ? action.weight.name : source.tensors()[action.tensor].entry->name;
}

// Actions in the order of their names. (Reports are as large as all else that there is of a tensor:
// sorting them would need half as much again.)
std::vector<std::size_t> by_name(const CheckpointReader& source, const QuantizePlan& plan) {
  std::vector<std::size_t> order(plan.actions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return natural_less(reported_name(source, plan.actions[a]),
                        reported_name(source, plan.actions[b]));
  });
  return order;
}

TensorReport report_of(const CheckpointReader& source, const TensorAction& action,
                       const ActionResult& result, bool measure) {
  const safetensors::TensorEntry& entry = *source.tensors()[action.tensor].entry;
  TensorReport out;
  out.name = reported_name(source, action);
  out.module = std::string(module_of(out.name));
  out.shape.assign(entry.shape.begin(), entry.shape.end());
  out.source = safetensors::stored_name(entry.type);
  out.why = action.why;
  out.bytes_before = entry.nbytes();
  for (const SpelledTensor& output : action.outputs) out.bytes_after += planned_bytes(output.plan);
  if (!action.quantize) return out;
  const Shape& shape = action.weight.shape;
  out.shape.assign(shape.sizes().begin(), shape.sizes().end());
  out.source = dtype_name(action.weight.source);
  out.bytes_before = static_cast<std::uint64_t>(element_count(shape)) *
                     static_cast<std::uint64_t>(element_bytes(action.weight.source));
  out.preset = action.preset;
  out.scaling = describe(action.weight.scaling);
  out.measured = measure;
  if (!measure) return out;
  out.metrics = result.error.metrics();
  out.results = result.error.result_values();
  out.metrics.bits_per_value =
      8.0 * static_cast<double>(out.bytes_after) / static_cast<double>(element_count(shape));
  const ExponentCounts& counts = result.error.scale_counts();
  out.scale_histogram.assign(counts.begin(), counts.end());
  return out;
}

// Of how many tensors a report has histograms: all, or the worst where there are more.
constexpr std::size_t kMostHistograms = 1000;
constexpr std::size_t kAdvisedTogether = 1024, kReturnedAfter = 16384;

// The SQNR that tensors with a histogram are at most at.
double worst_sqnr(const QuantizePlan& plan, const std::vector<ActionResult>& results,
                  bool measure) {
  std::vector<double> sqnrs;
  for (std::size_t i = 0; measure && i < results.size(); ++i)
    if (plan.actions[i].quantize) sqnrs.push_back(results[i].error.metrics().sqnr);
  if (sqnrs.size() <= kMostHistograms) return std::numeric_limits<double>::infinity();
  const auto last = sqnrs.begin() + kMostHistograms - 1;
  std::nth_element(sqnrs.begin(), last, sqnrs.end());
  return *last;
}

void drop_histograms(TensorReport& tensor) {
  tensor.metrics.values = ValueHistogram();  // the memory too, which {} would keep
  tensor.metrics.codes = std::vector<std::int64_t>();
  tensor.results = ValueHistogram();
  tensor.scale_histogram = std::vector<std::int64_t>();
}

// Takes what was planned and measured out of `plan` and `results`, a tensor at a time.
CheckpointReport make_report(const CheckpointReader& source, QuantizePlan& plan,
                             std::vector<ActionResult>& results, bool measure, int threads) {
  CheckpointReport report;
  const std::filesystem::path path(source.path());
  report.title = (path.has_filename() ? path : path.parent_path()).filename().string();
  report.recipe = plan.options.recipe;
  report.target = name_of(plan.options.target);
  report.provenance = provenance_of(source, plan, results);
  report.bytes_before = plan.bytes_before;
  report.bytes_after = plan.bytes_after;
  report.bits_per_weight = plan.bits_per_weight;
  report.notes = plan.notes;
  plan.model.weights = std::vector<QuantizedWeight>();
  return_freed_memory();  // that of files and their record too
  const double shown_up_to = worst_sqnr(plan, results, measure);
  WorkLoop advising(threads == 0 ? available_threads() : threads, 0, {}, false);
  std::size_t advised = 0;
  // A fraction of a millisecond each, and there may be thousands.
  const auto advise = [&] {
    advising.run(report.tensors.size() - advised, [&](int, std::size_t i) {
      TensorReport& tensor = report.tensors[advised + i];
      if (!tensor.measured) return;
      tensor.advice = advice_for(tensor);
      if (tensor.metrics.sqnr > shown_up_to) drop_histograms(tensor);
    });
    advised = report.tensors.size();
  };
  TargetAlternatives alternatives(plan.options.target);
  report.tensors.reserve(plan.actions.size());
  for (const std::size_t i : by_name(source, plan)) {
    report.tensors.push_back(report_of(source, plan.actions[i], results[i], measure));
    if (TensorReport& tensor = report.tensors.back(); tensor.measured)
      tensor.could_have = alternatives.of(plan.actions[i].weight);
    results[i].error = TensorError();
    plan.actions[i].outputs = std::vector<SpelledTensor>();
    plan.actions[i].weight.module = std::string();
    if (report.tensors.size() - advised == kAdvisedTogether) advise();
    if (report.tensors.size() % kReturnedAfter == 0) return_freed_memory();
  }
  advise();
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    if (results[i].found.nan + results[i].found.inf > 0)
      report.notes.push_back(text("tensor '", shown(reported_name(source, plan.actions[i]), 160),
                                  "': ", results[i].found.nan, " NaN and ", results[i].found.inf,
                                  " Inf were ",
                                  plan.actions[i].quantize ? "clamped" : "copied as they are"));
  return report;
}

bool wants_one_file(const std::string& out) { return out.ends_with(".safetensors"); }

CheckpointReport into_one_file(const CheckpointReader& source, QuantizePlan& plan,
                               const std::string& out, const std::string& identity,
                               const QuantizeCheckpointOptions& options) {
  check(plan.files.size() == 1, ErrorCode::invalid_argument, kOp, "'", shown(out, 200),
        "' is one file and the checkpoint has ", plan.files.size(),
        "; give the name of a folder (or other shard_bytes)");
  auto results = stream_checkpoint(source, plan, options,
                                   {.folder = nullptr, .file = out, .source = identity});
  CheckpointReport report = make_report(source, plan, results, options.measure, options.threads);
  if (plan.options.target != Dialect::octavo && plan.options.target != Dialect::comfyui)
    report.notes.push_back(text("target ", name_of(plan.options.target),
                                " is described in config.json, which one file has no place for"));
  return report;
}

// What there is to say of a folder that is complete: all but what is measured on the way.
CheckpointReport finished_report(const CheckpointReader& source, QuantizePlan& plan,
                                 const std::string& out, const Json& words,
                                 const QuantizeCheckpointOptions& options) {
  if (words["options_hash"].string_or("") != hex_of(text_hash(options_text(plan))) ||
      CheckpointReader(out).nbytes() != plan.bytes_after)
    fail_finished_otherwise(kOp, out);
  check_finished(source, plan, words, out,
                 {.op = kOp,
                  .made_from = words["source_hash"].string_or(""),
                  .threads = options.threads,
                  .on_progress = options.on_progress});
  std::vector<ActionResult> nothing_measured(plan.actions.size());
  CheckpointReport report = make_report(source, plan, nothing_measured, false, 1);
  report.provenance.clear();
  for (const auto& [key, value] : words.members())
    if (value.is_string()) report.provenance.emplace_back(key, value.string_or(""));
  report.was_complete = true;
  report.notes.push_back(finished_note(out) + "; compare measures it");
  return report;
}

}  // namespace

CheckpointReport quantize_checkpoint(const std::string& source_path, const std::string& out,
                                     const QuantizeCheckpointOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  check(!out.empty(), ErrorCode::invalid_argument, kOp, "got no name for the output");
  const CheckpointReader source(source_path);
  const std::string identity = source_identity(source);
  QuantizePlan plan = plan_quantize(source, options.plan);
  return_freed_memory();
  CheckpointReport report;
  const Json finished = options.resume && !wants_one_file(out) ? finished_words(out) : Json();
  if (finished.is_object()) {
    report = finished_report(source, plan, out, finished, options);
  } else if (wants_one_file(out)) {
    report = into_one_file(source, plan, out, identity, options);
  } else {
    auto results = stream_into_folder(
        source, plan, options, {text(options_text(plan), " measure=", options.measure), identity},
        out, [&](const std::vector<ActionResult>& done) {
          return quantize_words(source, plan, provenance_of(source, plan, done));
        });
    report = make_report(source, plan, results, options.measure, options.threads);
  }
  report.source = source_path;
  report.output = out;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace octavo
