// Converting and dequantizing: plans that the streaming of quantize_checkpoint executes.
#include "octavo/pipeline/convert_checkpoint.h"

#include <chrono>
#include <functional>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/pipeline/plan/convert_plan_internal.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"
#include "octavo/pipeline/plan/output_files_internal.h"
#include "octavo/pipeline/plan/provenance_internal.h"
#include "octavo/pipeline/shared_plan_internal.h"
#include "octavo/pipeline/stream/finished_folder_internal.h"
#include "octavo/pipeline/stream/shared_work_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/version.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "convert";

// Throws where the last step that made a folder was other work than `what`.
void check_work(std::string_view op, const std::string& out, const Json& made,
                const std::string& what) {
  if (made["work"].string_or("") != what || made["version"].string_or("") != version())
    fail_finished_otherwise(op, out);
}

void stream(const CheckpointReader& source, const std::string& out, const QuantizePlan& plan,
            const std::string& what, const SharedPlan* shared,
            const ConvertCheckpointOptions& options, ConvertCheckpointResult& result) {
  const QuantizeCheckpointOptions streaming{.plan = plan.options,
                                            .threads = options.threads,
                                            .max_memory = options.max_memory,
                                            .resume = options.resume,
                                            .measure = false,
                                            .on_progress = options.on_progress,
                                            .shared = options.shared};
  const auto provenance = [&](const std::vector<ActionResult>& results, const std::string& sample) {
    return step_provenance(source, plan, what, source_hash(source, plan, results), sample);
  };
  if (shared != nullptr) {
    const SharedIdentity agreed = shared->identity(source, plan, streaming);
    const SharedOutcome outcome =
        work_on_shared(source, plan, streaming, agreed, source_identity(source), out, provenance);
    result.finished_by_another = !outcome.results.has_value();
    if (result.finished_by_another) {
      const Json finished = finished_provenance(out);
      const Json& made = last_step(finished);
      check_work(kOp, out, made, what);
      check_made_from(kOp, source, out, made["source_sample"].string_or(""), agreed.sample);
    }
    result.files_written = outcome.files_written;
    result.files_taken_over = outcome.taken_over;
  } else if (is_one_file(out)) {
    check(plan.files.size() == 1, ErrorCode::invalid_argument, kOp, "'", shown(out, 200),
          "' is one file and the checkpoint has ", plan.files.size(), "; give a folder");
    (void)stream_checkpoint(source, plan, streaming, {.folder = nullptr, .file = out});
  } else {
    (void)stream_into_folder(
        source, plan, streaming,
        {.options = text(version(), " ", what, options.clamp_non_finite ? " clamp" : "",
                         " bytes=", plan.bytes_after),
         .source = source_fingerprint(source),
         .times = source_identity(source),
         .samples = [&] { return shard_samples(source, options.threads); }},
        out, provenance);
  }
}

// Error messages get the prefix `op`, whatever part of the pipeline they come from.
void speak_as(std::string_view op, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    fail_again(error, op, reason_of(error));
  }
}

void run(std::string_view op, const CheckpointReader& source, const std::string& out,
         const QuantizePlan& plan, const std::string& what, const SharedPlan* shared,
         const ConvertCheckpointOptions& options, ConvertCheckpointResult& result) {
  const auto start = std::chrono::steady_clock::now();
  check_output_name(op, out, plan.options.target);
  const Json finished = options.resume || shared != nullptr ? finished_provenance(out) : Json();
  if (finished.is_object()) {
    const Json& made = last_step(finished);
    check_work(op, out, made, what);
    const MadeFrom made_from{.hash = std::string(made["source_hash"].string_or("")),
                             .sample = std::string(made["source_sample"].string_or(""))};
    const FinishedDepth depth =
        shared != nullptr ? FinishedDepth::headers : FinishedDepth::every_byte;
    speak_as(op, [&] {
      result.written_again = check_finished(
          source, plan, finished, out,
          {.op = op,
           .made_from = made_from,
           .provenance =
               [&] {
                 return step_provenance(source, plan, what, made_from.hash, made_from.sample);
               },
           .depth = depth,
           .threads = options.threads,
           .on_progress = options.on_progress});
    });
    remove_work(out);
    result.was_complete = true;
    result.notes.push_back(finished_note(out, depth, result.written_again));
  } else {
    speak_as(op, [&] { stream(source, out, plan, what, shared, options, result); });
  }
  result.bytes_before = plan.bytes_before;
  result.bytes_after = plan.bytes_after;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

QuantizePlan plan_conversion(const CheckpointReader& source, Dialect target,
                             ConvertCheckpointResult& result) {
  return plan_convert(source, target, result);
}

ConvertCheckpointResult convert_checkpoint(const std::string& source_path, const std::string& out,
                                           Dialect given, const ConvertCheckpointOptions& options) {
  std::optional<SharedPlan> shared;
  if (options.shared) shared.emplace(kOp, *options.shared, kPlanOfConvert, out);
  const Dialect target = shared ? shared->file().options.target : given;
  const bool follow_links =
      shared ? shared->follow_links(options.follow_links) : options.follow_links;
  const CheckpointReader source(shared ? shared->model(source_path) : source_path,
                                copied_files(follow_links));
  if (shared) shared->check_source(source);
  ConvertCheckpointResult result;
  const QuantizePlan plan = plan_convert(source, target, result);
  run(kOp, source, out, plan, text("convert to ", name_of(target)), shared ? &*shared : nullptr,
      options, result);
  return result;
}

ConvertCheckpointResult dequantize_checkpoint(const std::string& source_path,
                                              const std::string& out, DType dtype,
                                              const ConvertCheckpointOptions& options) {
  check(dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32, ErrorCode::wrong_type,
        "dequantize", "got ", dtype_name(dtype), "; expected bfloat16, float16 or float32");
  const CheckpointReader source(source_path, copied_files(options.follow_links));
  ConvertCheckpointResult result;
  QuantizePlan plan = plan_dequantize(source, dtype, result);
  plan.options.clamp_non_finite = options.clamp_non_finite;
  run("dequantize", source, out, plan, text("dequantize to ", dtype_name(dtype)), nullptr, options,
      result);
  return result;
}

}  // namespace octavo
