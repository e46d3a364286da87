#include "octavo/pipeline/quantize_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/whole_file.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/shard_index.h"
#include "octavo/pipeline/folder_files_internal.h"
#include "octavo/pipeline/output_files_internal.h"
#include "octavo/pipeline/output_folder_internal.h"
#include "octavo/pipeline/provenance_internal.h"
#include "octavo/pipeline/stream_internal.h"
#include "octavo/pipeline/target_alternatives_internal.h"
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

TensorReport report_of(const CheckpointReader& source, const TensorAction& action,
                       const ActionResult& result, bool measure) {
  const safetensors::TensorEntry& entry = *source.tensors()[action.tensor].entry;
  TensorReport out;
  out.name = action.quantize ? action.weight.name : entry.name;
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

CheckpointReport make_report(const CheckpointReader& source, const QuantizePlan& plan,
                             const std::vector<ActionResult>& results, bool measure) {
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
  TargetAlternatives alternatives(plan.options.target);
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    report.tensors.push_back(report_of(source, plan.actions[i], results[i], measure));
    if (TensorReport& tensor = report.tensors.back(); tensor.measured)
      tensor.could_have = alternatives.of(plan.actions[i].weight);
    if (results[i].found.nan + results[i].found.inf > 0)
      report.notes.push_back(text("tensor '", shown(report.tensors.back().name, 160),
                                  "': ", results[i].found.nan, " NaN and ", results[i].found.inf,
                                  " Inf were ",
                                  plan.actions[i].quantize ? "clamped" : "copied as they are"));
  }
  std::stable_sort(
      report.tensors.begin(), report.tensors.end(),
      [](const TensorReport& a, const TensorReport& b) { return natural_less(a.name, b.name); });
  for (TensorReport& tensor : report.tensors)
    if (tensor.measured) tensor.advice = advice_for(tensor);
  return report;
}

bool wants_one_file(const std::string& out) { return out.ends_with(".safetensors"); }

CheckpointReport into_one_file(const CheckpointReader& source, const QuantizePlan& plan,
                               const std::string& out, const std::string& identity,
                               const QuantizeCheckpointOptions& options) {
  check(plan.files.size() == 1, ErrorCode::invalid_argument, kOp, "'", shown(out, 200),
        "' is one file and the checkpoint has ", plan.files.size(),
        "; give the name of a folder (or other shard_bytes)");
  const auto results = stream_checkpoint(source, plan, options,
                                         {.folder = nullptr, .file = out, .source = identity});
  CheckpointReport report = make_report(source, plan, results, options.measure);
  if (plan.options.target != Dialect::octavo && plan.options.target != Dialect::comfyui)
    report.notes.push_back(text("target ", name_of(plan.options.target),
                                " is described in config.json, which one file has no place for"));
  return report;
}

// What there is to say of a folder that is complete: all but what is measured on the way.
CheckpointReport finished_report(const CheckpointReader& source, const QuantizePlan& plan,
                                 const std::string& out, const Json& words) {
  if (words["options_hash"].string_or("") != hex_of(text_hash(options_text(plan))) ||
      CheckpointReader(out).nbytes() != plan.bytes_after)
    fail_finished_otherwise(kOp, out);
  CheckpointReport report =
      make_report(source, plan, std::vector<ActionResult>(plan.actions.size()), false);
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
  const QuantizePlan plan = plan_quantize(source, options.plan);
  CheckpointReport report;
  const Json finished = options.resume && !wants_one_file(out) ? finished_words(out) : Json();
  if (finished.is_object()) {
    report = finished_report(source, plan, out, finished);
  } else if (wants_one_file(out)) {
    report = into_one_file(source, plan, out, identity, options);
  } else {
    const auto results = stream_into_folder(
        source, plan, options, {text(options_text(plan), " measure=", options.measure), identity},
        out, [&](const std::vector<ActionResult>& done) {
          return quantize_words(source, plan, provenance_of(source, plan, done));
        });
    report = make_report(source, plan, results, options.measure);
  }
  report.source = source_path;
  report.output = out;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace octavo
