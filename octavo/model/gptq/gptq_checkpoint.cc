#include "octavo/model/gptq/gptq_checkpoint.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/model/gptq/calibration_walk_internal.h"
#include "octavo/pipeline/plan/output_files_internal.h"
#include "octavo/pipeline/quantize_checkpoint.h"
#include "octavo/pipeline/stream/finished_folder_internal.h"

namespace octavo {
namespace gptq_detail {
namespace {

constexpr const char* kOp = "gptq";

// "out/" has "out.gptq".
std::string work_beside(std::string out) {
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out + ".gptq";
}

// The root of a relative squared error.
std::string percent(double squared) {
  return text(std::round(1e4 * std::sqrt(squared)) / 1e2, " %");
}

void add_errors(const LayerFiles& files, CheckpointReport& report) {
  double sum = 0, rounded = 0;
  for (TensorReport& tensor : report.tensors) {
    const auto at = files.errors().find(tensor.name);
    if (at == files.errors().end()) continue;
    tensor.result_error = std::sqrt(at->second.error);
    tensor.rounded_result_error = std::sqrt(at->second.rounded_error);
    if (!tensor.why.empty()) tensor.why += "; ";
    tensor.why += text("GPTQ: on the text results are off by ", percent(at->second.error),
                       ", rounded to nearest ", percent(at->second.rounded_error));
  }
  for (const auto& [name, of] : files.errors()) {
    sum += of.error;
    rounded += of.rounded_error;
  }
  const auto count = static_cast<double>(files.errors().size());
  if (count > 0)
    report.notes.push_back(
        text("GPTQ of ", files.errors().size(), " weights: on the text their results are off by ",
             percent(sum / count), " (root of the mean square), rounded to nearest ",
             percent(rounded / count)));
}

// What both calls below begin with.
struct Prepared {
  Prepared(const std::string& source, const std::string& out,
           const QuantizeCheckpointOptions& options, const GptqCalibration& calibration)
      : reader(open_values(source, copied_files(options.follow_links), std::string())),
        plan(plan_quantize(reader, options.plan)),
        walk(reader, plan, options, calibration,
             !calibration.work.empty() || out.empty() ? calibration.work : work_beside(out)) {}

  CheckpointReader reader;
  QuantizePlan plan;
  CalibrationWalk walk;
};

// Of the call itself, before anything is opened.
void check_call(const std::string& out, const QuantizeCheckpointOptions& options) {
  check(!options.shared, ErrorCode::unsupported, kOp,
        "got a plan file for several processes; GPTQ walks the layers one after the other, in one "
        "process");
  check(!options.delete_source, ErrorCode::unsupported, kOp,
        "got option delete_source; GPTQ needs the source to the end");
  check_output_name(kOp, out, options.plan.target);
}

// Of the output folder: what the pipeline would refuse when all layers are done.
void check_output(const std::string& out, const QuantizePlan& plan, bool resume) {
  check(!is_one_file(out) || plan.files.size() == 1, ErrorCode::invalid_argument, kOp, "'",
        shown(out, 200), "' is one file and the checkpoint has ", plan.files.size(),
        "; give the name of a folder (or other shard_bytes)");
  std::error_code ignored;
  check(resume || !std::filesystem::exists(out, ignored) || std::filesystem::is_empty(out, ignored),
        ErrorCode::invalid_argument, kOp, "'", shown(out, 200),
        "' is there already and not empty; expected a new folder, or option resume");
}

}  // namespace
}  // namespace gptq_detail

CheckpointReport gptq_checkpoint(const std::string& source, const std::string& out,
                                 const QuantizeCheckpointOptions& given,
                                 const GptqCalibration& calibration) {
  using namespace gptq_detail;
  const FpEnvGuard guard;  // sums and factors are computed on this thread, too
  const auto start = std::chrono::steady_clock::now();
  check_call(out, given);
  QuantizeCheckpointOptions options = given;
  Prepared prepared(source, out, options, calibration);
  CalibrationWalk& walk = prepared.walk;
  LayerFiles files(walk.work(), walk.method());
  std::vector<std::string> notes;
  const bool is_done = options.resume && finished_provenance(out).is_object();
  if (!is_done) {
    check_output(out, prepared.plan, options.resume);
    const std::string needs = walk.check();
    walk.run(files, needs);
    files.open(walk.layers());
    notes = walk.notes();
  }
  options.codes = &files;
  CheckpointReport report = quantize_checkpoint(source, out, options);
  add_errors(files, report);
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  walk.finish(files);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::string check_gptq_checkpoint(const std::string& source, const std::string& out,
                                  const QuantizeCheckpointOptions& options,
                                  const GptqCalibration& calibration) {
  using namespace gptq_detail;
  const FpEnvGuard guard;
  if (!out.empty()) check_call(out, options);
  Prepared prepared(source, out, options, calibration);
  if (!out.empty()) check_output(out, prepared.plan, options.resume);
  return prepared.walk.check();
}

}  // namespace octavo
