#include "octavo/pipeline/quantize_checkpoint.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/checkpoint/deleted_shards_internal.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/pipeline/error_summary_internal.h"
#include "octavo/pipeline/make_report_internal.h"
#include "octavo/pipeline/output/complete_folder_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/file/plan_file_internal.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"
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
  std::string out = text(version(), " ", options_json(plan.options).dump(0));
  if (plan.options.statistics != nullptr)
    out += text(" statistics=", plan.options.statistics->identity());
  if (codes != nullptr) out += text(" method=", codes->method());
  return out + text(" files=", plan.files.size(), " bytes=", plan.bytes_after);
}

Provenance provenance_of(const QuantizePlan& plan, const MadeFrom& from, const MadeCodes* codes) {
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
  out.emplace_back("source_hash", from.hash);
  out.emplace_back("source_sample", from.sample);
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
  const Provenance provenance = provenance_of(
      plan, {source_hash(source, plan, results), source_sample(source, options.threads)},
      options.codes);
  CheckpointReport report =
      make_report(source, plan, results, provenance, options.measure, options.threads);
  if (plan.options.target != Dialect::octavo && plan.options.target != Dialect::comfyui &&
      plan.options.target != Dialect::gguf)
    report.notes.push_back(text("target ", name_of(plan.options.target),
                                " is described in config.json, which one file has no place for"));
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

bool is_of(const QuantizePlan& plan, const MadeCodes* codes, const Json& provenance) {
  return provenance["options_hash"].string_or("") == hex_of(text_hash(options_text(plan, codes)));
}

// Shards that were to be deleted and are not.
void note_left(const std::vector<std::string>& left, CheckpointReport& report) {
  if (left.empty()) return;
  report.notes.push_back(text(left.size(), left.size() == 1 ? " file" : " files",
                              " of the source could not be deleted, such as '",
                              shown(left.front(), 120),
                              "': changed since, of another name, too, or not to be written to; or "
                              "no loader loads the output (octavo verify says why)"));
}

// The report for a complete folder: everything but the metrics, which are measured while streaming;
// of one of several processes without the tensors, as each of them makes it.
CheckpointReport finished_report(const CheckpointReader& source, QuantizePlan& plan,
                                 const std::string& out, const Json& provenance,
                                 const QuantizeCheckpointOptions& options) {
  if (!is_of(plan, options.codes, provenance)) fail_finished_otherwise(kOp, out);
  const MadeFrom made_from{.hash = std::string(provenance["source_hash"].string_or("")),
                           .sample = std::string(provenance["source_sample"].string_or(""))};
  const FinishedDepth depth = options.shared ? FinishedDepth::headers : FinishedDepth::every_byte;
  std::vector<std::string> written_again =
      check_finished(source, plan, provenance, out,
                     {.op = kOp,
                      .made_from = made_from,
                      .provenance =
                          [&] {
                            Json said = quantize_provenance(
                                source, plan, provenance_of(plan, made_from, options.codes));
                            for (const char* const measured : {"errors", "error_ranges"})
                              if (provenance.has(measured))
                                said.set(measured, provenance[measured]);
                            return said;
                          },
                      .depth = depth,
                      .threads = options.threads,
                      .on_progress = options.on_progress});
  remove_work(out);
  std::vector<std::string> left;
  // An earlier call was stopped as it deleted the last shards.
  if (options.delete_source && std::filesystem::exists(text(out, "/", kDeletedShards)))
    left = delete_kept_shards(source, out, plan.options.target);
  CheckpointReport report;
  if (options.shared) {
    report = report_of_part(source, plan, {});
  } else {
    Provenance said;
    for (const auto& [key, value] : provenance.members())
      if (value.is_string()) said.emplace_back(key, value.string_or(""));
    std::vector<ActionResult> nothing_measured(plan.actions.size());
    report = make_report(source, plan, nothing_measured, said, false, 1);
  }
  report.was_complete = true;
  report.ranges = read_error_ranges(provenance["error_ranges"]);
  report.notes.push_back(finished_note(out, depth, written_again) + "; compare measures it");
  note_left(left, report);
  report.written_again = std::move(written_again);
  return report;
}

// The same for a folder whose source has no weights any more, as option delete_source leaves it:
// its own sums say that it is whole. Nothing where the folder is not complete.
std::optional<CheckpointReport> finished_without_source(const std::string& out,
                                                        const QuantizeCheckpointOptions& options) {
  const Json finished = finished_provenance(out);
  if (!finished.is_object() || finished["sums"].members().empty()) return std::nullopt;
  const std::string recipe(finished["recipe"].string_or("")),
      target(finished["target"].string_or(""));
  if ((!options.plan.recipe.empty() && options.plan.recipe != recipe) ||
      name_of(options.plan.target) != target)
    fail_finished_otherwise(kOp, out);
  CheckpointReport report;
  for (const auto& [file, sum] : finished["sums"].members()) {
    const std::string path = text(out, "/", file);
    if (!has_checksum(path, sum.string_or("")))
      fail_on_file(
          EEXIST, path, kOp, "'", shown(path, 200),
          "' is not what was written, and the model that it was made of is not there any "
          "more; see that the storage gives what it has, or start again from a whole model");
    std::error_code ignored;
    report.bytes_after += std::filesystem::file_size(path, ignored);
  }
  remove_kept_headers(out);
  report.title = std::filesystem::path(out).filename().string();
  report.recipe = recipe;
  report.target = target;
  report.was_complete = true;
  report.ranges = read_error_ranges(finished["error_ranges"]);
  report.notes.push_back(text("'", shown(out, 200),
                              "' was complete: its files are what they were, "
                              "and the model has no weights any more to compare them with"));
  return report;
}

// One of several processes.
CheckpointReport into_shared_folder(const CheckpointReader& source, QuantizePlan& plan,
                                    const std::string& out, const std::string& identity,
                                    const SharedIdentity& shared,
                                    const QuantizeCheckpointOptions& options,
                                    const MakeProvenance& make_provenance,
                                    const Provenance& provenance) {
  SharedOutcome outcome =
      work_on_shared(source, plan, options, shared, identity, out, make_provenance);
  if (!outcome.results) {
    // Finished by this plan, or by another that ended as this process began.
    const Json finished = finished_provenance(out);
    if (!is_of(plan, options.codes, finished)) fail_finished_otherwise(kOp, out);
    check_made_from(kOp, source, out, finished["source_sample"].string_or(""), shared.sample);
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
  const bool goes_on = shared || (options.resume && !is_one_file(out));
  const Json finished = goes_on ? finished_provenance(out) : Json();
  if (finished.is_object()) return finished_report(source, plan, out, finished, options);
  if (is_one_file(out)) return into_one_file(source, plan, out, identity, options);
  // The weights are needed again for config.json; until then they are not kept twice.
  plan.model.weights = std::vector<QuantizedWeight>();
  Provenance provenance;
  const MakeProvenance make_provenance = [&](const std::vector<ActionResult>& done,
                                             const std::string& sample) {
    plan.model.weights = planned_weights(plan);
    provenance = provenance_of(plan, {source_hash(source, plan, done), sample}, options.codes);
    Json said = quantize_provenance(source, plan, provenance);
    if (options.measure && !plan.model.weights.empty()) {
      said.set("errors", error_summary(plan, done));
      said.set("error_ranges", error_ranges(plan, done));
    }
    return said;
  };
  if (shared)
    return into_shared_folder(source, plan, out, identity, *shared, options, make_provenance,
                              provenance);
  std::vector<std::string> left;
  auto results = stream_into_folder(
      source, plan, options,
      {.options = text(options_text(plan, options.codes), " measure=", options.measure),
       .source = source_fingerprint(source),
       .times = identity,
       .samples = [&] { return shard_samples(source, options.threads); }},
      out, make_provenance, &left);
  CheckpointReport report =
      make_report(source, plan, results, provenance, options.measure, options.threads);
  note_left(left, report);
  return report;
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
    options.follow_links = shared->follow_links(options.follow_links);
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
  std::optional<CheckpointReader> opened;
  try {
    opened.emplace(open_values(shared ? shared->model(source_path) : source_path,
                               copied_files(options.follow_links),
                               shared ? std::string() : deleted_shards_of(out)));
  } catch (const Error&) {
    if (shared || !options.resume || is_one_file(out)) throw;
    std::optional<CheckpointReport> report = finished_without_source(out, options);
    if (!report) throw;
    report->source = source_path;
    report->output = out;
    return *std::move(report);
  }
  const CheckpointReader& source = *opened;
  if (shared) shared->check_source(source);
  const std::string identity = source_identity(source);
  QuantizePlan plan = plan_quantize(source, options.plan);
  std::optional<SharedIdentity> agreed;
  if (shared) agreed = shared->identity(source, plan, options);
  return_freed_memory();
  CheckpointReport report = run(source, std::move(plan), out, identity, agreed, options);
  report.source = source.path();
  report.output = out;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace octavo
