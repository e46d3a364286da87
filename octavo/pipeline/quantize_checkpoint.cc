#include "octavo/pipeline/quantize_checkpoint.h"

#include <chrono>
#include <filesystem>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/checkpoint/deleted_shards_internal.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/pipeline/error_summary_internal.h"
#include "octavo/pipeline/make_report_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/output_files_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/plan/provenance_internal.h"
#include "octavo/pipeline/shared_plan_internal.h"
#include "octavo/pipeline/stream/finished_folder_internal.h"
#include "octavo/pipeline/stream/shared_work_internal.h"
#include "octavo/pipeline/stream/source_deletion_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/report/choose_format.h"
#include "octavo/version.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

// Everything besides the source that the output bytes depend on.
std::string options_text(const QuantizePlan& plan, const MadeCodes* codes) {
  const QuantizePlanOptions& of = plan.options;
  std::string out =
      text(version(), " ", of.recipe, " ", name_of(of.target), " format=", of.format,
           " rule=", of.scale_rule, " arith=", of.arith, " policy=", of.scale_policy,
           " scale=", of.scale_format, " tile=", of.tile, " share=", of.share,
           " bf16=", of.bf16_scales, " clamp=", of.clamp_non_finite, " shard=", of.shard_bytes);
  for (const std::string& name : of.include) out += text(" include=", name);
  for (const std::string& name : of.exclude) out += text(" exclude=", name);
  for (const auto& [name, recipe] : of.recipe_for) out += text(" ", name, "=>", recipe);
  if (of.statistics != nullptr) out += text(" statistics=", of.statistics->identity());
  if (of.input_scales != StaticScaleSource::none) out += text(" inputs=", name_of(of.input_scales));
  if (of.kv_scales != StaticScaleSource::none) out += text(" kv=", name_of(of.kv_scales));
  if (codes != nullptr) out += text(" method=", codes->method());
  out += text(" files=", plan.files.size(), " bytes=", plan.bytes_after);
  return out;
}

Provenance provenance_of(const QuantizePlan& plan, const std::string& source_hash,
                         const MadeCodes* codes) {
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
  if (codes != nullptr) out.emplace_back("method", codes->method());
  out.emplace_back("options_hash", hex_of(text_hash(options_text(plan, codes))));
  out.emplace_back("source_hash", source_hash);
  return out;
}

CheckpointReport into_one_file(const CheckpointReader& source, QuantizePlan& plan,
                               const std::string& out, const std::string& identity,
                               const QuantizeCheckpointOptions& options) {
  check(plan.files.size() == 1, ErrorCode::invalid_argument, kOp, "'", shown(out, 200),
        "' is one file and the checkpoint has ", plan.files.size(),
        "; give the name of a folder (or other shard_bytes)");
  auto results = stream_checkpoint(source, plan, options,
                                   {.folder = nullptr, .file = out, .source = identity});
  const Provenance provenance =
      provenance_of(plan, source_hash(source, plan, results), options.codes);
  CheckpointReport report =
      make_report(source, plan, results, provenance, options.measure, options.threads);
  if (plan.options.target != Dialect::octavo && plan.options.target != Dialect::comfyui &&
      plan.options.target != Dialect::gguf)
    report.notes.push_back(text("target ", name_of(plan.options.target),
                                " is described in config.json, which one file has no place for"));
  return report;
}

// The report for a complete folder: everything but the metrics, which are measured while streaming.
CheckpointReport finished_report(const CheckpointReader& source, QuantizePlan& plan,
                                 const std::string& out, const Json& provenance,
                                 const QuantizeCheckpointOptions& options) {
  if (provenance["options_hash"].string_or("") !=
      hex_of(text_hash(options_text(plan, options.codes))))
    fail_finished_otherwise(kOp, out);
  const std::string made_from(provenance["source_hash"].string_or(""));
  std::vector<std::string> written_again =
      check_finished(source, plan, provenance, out,
                     {.op = kOp,
                      .made_from = made_from,
                      .provenance =
                          [&] {
                            Json said = quantize_provenance(
                                source, plan, provenance_of(plan, made_from, options.codes));
                            if (provenance.has("errors")) said.set("errors", provenance["errors"]);
                            return said;
                          },
                      .threads = options.threads,
                      .on_progress = options.on_progress});
  // An earlier call was stopped as it deleted the last shards.
  if (options.delete_source && std::filesystem::exists(text(out, "/", kDeletedShards)))
    SourceDeletion(source, plan, out).folder_is_complete();
  std::vector<ActionResult> nothing_measured(plan.actions.size());
  Provenance said;
  for (const auto& [key, value] : provenance.members())
    if (value.is_string()) said.emplace_back(key, value.string_or(""));
  CheckpointReport report = make_report(source, plan, nothing_measured, said, false, 1);
  report.was_complete = true;
  report.notes.push_back(finished_note(out, written_again) + "; compare measures it");
  report.written_again = std::move(written_again);
  return report;
}

// The report of a process that did not write what is written last, or that had nothing left to do.
CheckpointReport report_of_part(const CheckpointReader& source, const QuantizePlan& plan,
                                const SharedOutcome& outcome) {
  const std::filesystem::path path(source.path());
  CheckpointReport report;
  report.title = (path.has_filename() ? path : path.parent_path()).filename().string();
  report.recipe = plan.options.recipe;
  report.target = name_of(plan.options.target);
  report.bytes_before = plan.bytes_before;
  report.bytes_after = plan.bytes_after;
  report.bits_per_weight = plan.bits_per_weight;
  report.finished_by_another = true;
  report.files_written = outcome.files_written;
  report.files_taken_over = outcome.taken_over;
  return report;
}

// One of several processes. What a complete folder holds is not read again: each of them would.
CheckpointReport into_shared_folder(const CheckpointReader& source, QuantizePlan& plan,
                                    const std::string& out, const std::string& identity,
                                    const SharedIdentity& shared,
                                    const QuantizeCheckpointOptions& options,
                                    const MakeProvenance& make_provenance,
                                    const Provenance& provenance) {
  const auto is_finished = [&] {
    const Json finished = finished_provenance(out);
    if (!finished.is_object()) return false;
    if (finished["options_hash"].string_or("") !=
        hex_of(text_hash(options_text(plan, options.codes))))
      fail_finished_otherwise(kOp, out);
    return true;
  };
  if (is_finished()) {
    CheckpointReport report = report_of_part(source, plan, {});
    report.was_complete = true;
    report.notes.push_back(text("'", shown(out, 200), "' was complete: nothing was done"));
    return report;
  }
  SharedOutcome outcome =
      work_on_shared(source, plan, options, shared, identity, out, make_provenance);
  if (!outcome.results) {
    (void)is_finished();  // by this plan, or by another that ended as this process began
    return report_of_part(source, plan, outcome);
  }
  CheckpointReport report =
      make_report(source, plan, *outcome.results, provenance, options.measure, options.threads);
  report.files_written = outcome.files_written;
  report.files_taken_over = outcome.taken_over;
  return report;
}

CheckpointReport run(const CheckpointReader& source, QuantizePlan plan, const std::string& out,
                     const std::string& identity, const std::optional<SharedIdentity>& shared,
                     const QuantizeCheckpointOptions& options) {
  const Json finished =
      options.resume && !shared && !is_one_file(out) ? finished_provenance(out) : Json();
  if (finished.is_object()) return finished_report(source, plan, out, finished, options);
  if (is_one_file(out)) return into_one_file(source, plan, out, identity, options);
  // The weights are needed again for config.json; until then they are not kept twice.
  plan.model.weights = std::vector<QuantizedWeight>();
  Provenance provenance;
  const MakeProvenance make_provenance = [&](const std::vector<ActionResult>& done) {
    plan.model.weights = planned_weights(plan);
    provenance = provenance_of(plan, source_hash(source, plan, done), options.codes);
    Json said = quantize_provenance(source, plan, provenance);
    if (options.measure && !plan.model.weights.empty())
      said.set("errors", error_summary(plan, done));
    return said;
  };
  if (shared)
    return into_shared_folder(source, plan, out, identity, *shared, options, make_provenance,
                              provenance);
  auto results = stream_into_folder(
      source, plan, options,
      {text(options_text(plan, options.codes), " measure=", options.measure), identity}, out,
      make_provenance);
  return make_report(source, plan, results, provenance, options.measure, options.threads);
}

}  // namespace

CheckpointReport quantize_checkpoint(const std::string& source_path, const std::string& out,
                                     const QuantizeCheckpointOptions& given) {
  const auto start = std::chrono::steady_clock::now();
  QuantizeCheckpointOptions options = given;
  std::optional<SharedPlan> shared;
  if (options.shared) {
    shared.emplace(kOp, *options.shared, kPlanOfQuantize, out);
    options.plan = shared->file().options;
    options.follow_links = options.follow_links || shared->file().follow_links;
  }
  check_output_name(kOp, out, options.plan.target);
  check(!options.delete_source || (!shared && !is_one_file(out)), ErrorCode::invalid_argument, kOp,
        "option delete_source is for one process that writes a folder; leave it out, and delete "
        "the source when the work is done");
  check(
      !options.delete_source || options.plan.format != kMeasuredFormat, ErrorCode::invalid_argument,
      kOp,
      "got option delete_source and format 'auto'; a call that goes on would read all values again "
      "to choose formats, deleted ones too: leave one of them out");
  const CheckpointReader source = open_values(
      shared ? shared->model(source_path) : source_path, copied_files(options.follow_links),
      options.delete_source ? text(out, "/", kDeletedShards) : std::string());
  if (shared) shared->check_source(source);
  const std::string identity = source_identity(source);
  QuantizePlan plan = plan_quantize(source, options.plan);
  std::optional<SharedIdentity> agreed;
  if (shared) agreed = shared->identity(source, plan, options.measure);
  return_freed_memory();
  CheckpointReport report = run(source, std::move(plan), out, identity, agreed, options);
  report.source = source.path();
  report.output = out;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace octavo
