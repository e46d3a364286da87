#include "octavo/model/gptq/gptq_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/model/eval/layer_walk_internal.h"
#include "octavo/model/eval/walk_state_internal.h"
#include "octavo/model/gptq/cholesky_internal.h"
#include "octavo/model/gptq/layer_files_internal.h"
#include "octavo/pipeline/quantize_checkpoint.h"
#include "octavo/pipeline/stream/finished_folder_internal.h"

namespace octavo {
namespace gptq_detail {
namespace {

constexpr const char* kOp = "gptq";

// Of the largest product: its Hessian, its factor, and the arrays of a column walk in f32.
std::uint64_t work_nbytes(const QuantizePlan& plan) {
  std::uint64_t most = 0;
  for (const TensorAction& action : plan.actions) {
    if (!action.quantize || action.weight.shape.rank() != 2) continue;
    const auto rows = static_cast<std::uint64_t>(action.weight.shape[0]),
               width = static_cast<std::uint64_t>(action.weight.shape[1]);
    most = std::max(most, width * width * 16 + rows * width * 16);
  }
  return most;
}

// What tells one calibration from another, besides the plan.
std::string method_of(const GptqCalibration& of, const eval::TokenWindows& windows) {
  std::string out = text("gptq, damping ", of.damping, ", columns ", name_of(of.order), ", ",
                         windows.rows(), " tokens in windows of ", windows.window);
  for (const eval::TokenizedText& one : windows.texts)
    out += text(", text ", hex_of(eval::tokens_hash(one)));
  return out;
}

Json identity_of(const QuantizePlan& plan, const std::string& method) {
  Json scalings = Json::array();
  for (const TensorAction& action : plan.actions)
    if (action.quantize)
      scalings.push(
          text(action.weight.name, ": ", describe(action.scaling), " in group ", action.group));
  return Json::object({{"method", method}, {"weights", std::move(scalings)}});
}

class Calibration {
 public:
  Calibration(const CheckpointReader& source, const QuantizePlan& plan,
              const QuantizeCheckpointOptions& options, const GptqCalibration& calibration)
      : source_(source),
        plan_(plan),
        options_(options),
        of_(calibration),
        model_(eval::open_eval_model(source.path(), {.threads = options.threads})),
        files_(source.path(), {.threads = options.threads}) {
    const eval::EvalModel* const models[] = {model_.get()};
    windows_ = eval::make_windows(
        kOp, models, eval::tokenize_texts(kOp, models, of_.texts, of_.tokens), of_.window);
    for (const bool sparse : files_.config().sparse)
      check(!sparse, ErrorCode::unsupported, kOp, "'", shown(source.path(), 200),
            "' is a mixture of experts; expected a dense decoder: round this model to nearest "
            "(--method rtn)");
  }

  [[nodiscard]] std::string method() const { return method_of(of_, windows_); }
  [[nodiscard]] std::int64_t layers() const { return files_.config().layers; }
  [[nodiscard]] std::vector<std::string> notes() const {
    std::vector<std::string> out;
    std::int64_t widest = 0;
    for (const TensorAction& action : plan_.actions)
      if (action.quantize && action.weight.shape.rank() == 2)
        widest = std::max(widest, action.weight.shape[1]);
    if (windows_.rows() < widest)
      out.push_back(text("calibrated on ", windows_.rows(), " tokens, fewer than the ", widest,
                         " channels of the widest product: damping fills in for the rest; give "
                         "more text"));
    if (const auto& left = rounded_; !left.empty())
      out.push_back(text(left.size(), left.size() == 1 ? " weight is" : " weights are",
                         " of no decoder layer that octavo runs and were rounded to nearest: ",
                         shown(left.front(), 160), left.size() > 1 ? ", ..." : ""));
    return out;
  }

  void run(const std::string& work, const LayerFiles& files) {
    const eval::EvalModel* const models[] = {model_.get()};
    const eval::MemoryPlan memory =
        eval::plan_memory(kOp, models, windows_, of_.max_memory, work_nbytes(plan_));
    std::vector<eval::HiddenStates> hidden;
    hidden.emplace_back(kOp, windows_.rows(), model_->shape().hidden,
                        !memory.spills          ? ""
                        : of_.temporary.empty() ? std::filesystem::temp_directory_path().string()
                                                : of_.temporary);
    if (!options_.resume) {
      std::error_code ignored;
      std::filesystem::remove(work + "/" + std::string(eval::kWalkState), ignored);
    }
    eval::WalkState state(kOp, work, models, windows_, identity_of(plan_, files.method()));
    eval::Differences none;
    std::int64_t next = state.restore(hidden, none);
    eval::EvalProgress progress(kOp, options_.on_progress,
                                bytes_from(std::max<std::int64_t>(next, 0)));
    progress.say_on_cancel("with resume the same call goes on from the last layer");
    const eval::WalkedModel walked[] = {{model_.get(), hidden.data()}};
    if (next < 0) {
      eval::walk_embedding({.models = walked, .windows = &windows_});
      next = 0;
    }
    PlannedWeights weights(source_, plan_);
    const GptqOptions how{.damping = of_.damping, .order = of_.order, .threads = options_.threads};
    for (std::int64_t layer = next; layer < layers(); ++layer) {
      const std::int64_t bytes = files_.layer_nbytes(layer);
      const std::string current = text("layer ", layer, " of ", layers());
      const LayerCodes codes = quantize_layer(
          {.layer = files_.load_layer(layer).parts().layer,
           .windows = windows_,
           .hidden = hidden.front(),
           .weights = weights,
           .options = how,
           .progress = [&](double part) {
             constexpr std::int64_t kParts = 1000;
             progress.show(bytes, static_cast<std::int64_t>(part * kParts), kParts, current);
           }});
      progress.finish(bytes);
      files.store(layer, codes);
      state.store(layer + 1, hidden, none);
      return_freed_memory();
    }
    std::vector<std::string> unread = weights.unread();
    // Those of layers that an earlier process did are among them.
    std::erase_if(unread, [&](const std::string& name) { return in_done_layers(name, next); });
    rounded_ = std::move(unread);
  }

  void finish(const std::string& work, const LayerFiles& files) const {
    files.remove(layers());
    const eval::EvalModel* const models[] = {model_.get()};
    eval::WalkState(kOp, work, models, windows_, Json::object({})).remove();
  }

 private:
  [[nodiscard]] std::int64_t bytes_from(std::int64_t layer) const {
    std::int64_t bytes = 0;
    for (std::int64_t i = layer; i < layers(); ++i) bytes += files_.layer_nbytes(i);
    return bytes;
  }

  static bool in_done_layers(const std::string& name, std::int64_t next) {
    for (std::int64_t layer = 0; layer < next; ++layer)
      if (name.find(text("layers.", layer, ".")) != std::string::npos) return true;
    return false;
  }

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const QuantizeCheckpointOptions& options_;
  const GptqCalibration& of_;
  std::unique_ptr<eval::EvalModel> model_;
  ModelFiles files_;
  eval::TokenWindows windows_;
  std::vector<std::string> rounded_;
};

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

}  // namespace
}  // namespace gptq_detail

CheckpointReport gptq_checkpoint(const std::string& source, const std::string& out,
                                 const QuantizeCheckpointOptions& given,
                                 const GptqCalibration& calibration) {
  using namespace gptq_detail;
  const auto start = std::chrono::steady_clock::now();
  check(!given.shared, ErrorCode::unsupported, kOp,
        "got a plan file for several processes; GPTQ walks the layers one after the other, in one "
        "process");
  check(!given.delete_source, ErrorCode::unsupported, kOp,
        "got option delete_source; GPTQ needs the source to the end");
  check(has_cholesky(), ErrorCode::unsupported, kOp,
        "octavo was built without Eigen, which factors Hessians; install it (Debian: "
        "libeigen3-dev) and build octavo again");
  QuantizeCheckpointOptions options = given;
  const std::string work = calibration.work.empty() ? work_beside(out) : calibration.work;
  std::vector<std::string> notes;
  const CheckpointReader reader =
      open_values(source, copied_files(options.follow_links), std::string());
  const QuantizePlan plan = plan_quantize(reader, options.plan);
  Calibration calibrated(reader, plan, options, calibration);
  LayerFiles files(work, calibrated.method());
  const bool is_done = options.resume && finished_provenance(out).is_object();
  if (!is_done) {
    check(options.resume || !std::filesystem::exists(out) || std::filesystem::is_empty(out),
          ErrorCode::invalid_argument, kOp, "'", shown(out, 200),
          "' is there already and not empty; expected a new folder, or option resume");
    calibrated.run(work, files);
    files.open(calibrated.layers());
    notes = calibrated.notes();
  }
  options.codes = &files;
  CheckpointReport report = quantize_checkpoint(source, out, options);
  add_errors(files, report);
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  calibrated.finish(work, files);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace octavo
