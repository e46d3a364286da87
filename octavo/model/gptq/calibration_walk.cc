#include "octavo/model/gptq/calibration_walk_internal.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/model/eval/walk_state_internal.h"
#include "octavo/model/gptq/gptq_factor_internal.h"
#include "octavo/model/gptq/gptq_memory_internal.h"
#include "octavo/model/gptq/tile_rounding_internal.h"
#include "octavo/pipeline/plan/file/plan_file_internal.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"
#include "octavo/version.h"

namespace octavo::gptq_detail {
namespace {

constexpr const char* kOp = "gptq";

std::string mebibytes(std::uint64_t bytes) { return text((bytes + (1U << 20) - 1) >> 20, " MiB"); }

}  // namespace

CalibrationWalk::CalibrationWalk(const CheckpointReader& source, const QuantizePlan& plan,
                                 const QuantizeCheckpointOptions& options,
                                 const GptqCalibration& calibration, std::string work)
    : source_(source),
      plan_(plan),
      options_(options),
      of_(calibration),
      work_(std::move(work)),
      model_(eval::open_eval_model(source.path(), {.threads = options.threads})),
      files_(source.path(), {.threads = options.threads}),
      weights_(source, plan) {
  const eval::EvalModel* const models[] = {model_.get()};
  windows_ = eval::make_windows(
      kOp, models, eval::tokenize_texts(kOp, models, of_.texts, of_.tokens), of_.window);
}

std::string CalibrationWalk::method() const {
  std::string out = text("gptq, damping ", of_.damping, ", columns ", name_of(of_.order), ", ",
                         windows_.rows(), " tokens in windows of ", windows_.window);
  for (const eval::TokenizedText& one : windows_.texts)
    out += text(", text ", hex_of(eval::tokens_hash(one)));
  return out;
}

void CalibrationWalk::check_plan() const {
  for (const bool sparse : files_.config().sparse)
    octavo::check(!sparse, ErrorCode::unsupported, kOp, "'", shown(source_.path(), 200),
                  "' is a mixture of experts; expected a dense decoder: round this model to "
                  "nearest (--method rtn)");
  check_gptq_options(gptq_options());
  for (const TensorAction& action : plan_.actions) {
    if (!is_by_gptq(action)) continue;
    octavo::check(
        action.weight.source != DType::f64, ErrorCode::unsupported, kOp, "'",
        shown(action.weight.name, 200),
        "' is float64; expected float32, bfloat16 or float16: convert the model, or round "
        "it to nearest (--method rtn)");
    try {
      check_scaling_fits(action.scaling);
    } catch (const Error& error) {
      fail(error.code(), kOp, "'", shown(action.weight.name, 200), "': ", reason_of(error));
    }
  }
}

// A state is used or removed by those who say so.
void CalibrationWalk::check_work_folder() const {
  std::error_code ignored;
  if (options_.resume || work_.empty() || !std::filesystem::exists(work_, ignored)) return;
  octavo::check(
      std::filesystem::is_directory(work_, ignored) && std::filesystem::is_empty(work_, ignored),
      ErrorCode::invalid_argument, kOp, "'", shown(work_, 400), "' ",
      std::filesystem::exists(work_ + "/" + std::string(eval::kWalkState), ignored)
          ? "has the state of a run that was stopped"
          : "is there already and not empty",
      "; expected option resume, which goes on from there, or no such folder: remove it "
      "to begin again");
}

std::string CalibrationWalk::check() {
  check_plan();
  check_work_folder();
  const eval::EvalModel* const models[] = {model_.get()};
  const GptqMemory gptq = gptq_memory(plan_);
  memory_ = eval::plan_memory(kOp, models, windows_, of_.max_memory, gptq.all(), gptq.text_of());
  weights_.check_values();
  return text("gptq takes about ", mebibytes(memory_.bytes), " of memory for ", layers(),
              " layers on ", windows_.rows(), " tokens, ", mebibytes(gptq.all()), " of it for ",
              gptq.text_of(), memory_.spills ? "; hidden states are in a temporary file" : "");
}

// What codes depend on besides the model's name and the texts, which the state knows of itself.
Json CalibrationWalk::identity() const {
  Json out = Json::object({{"version", version()},
                           {"method", method()},
                           {"source files", source_sample(source_, options_.threads)}});
  const Json options = options_json(plan_.options);
  for (const auto& [name, value] : options.members())  // a file of statistics may have any name
    if (name != "statistics") out.set(text("option ", name), value);
  out.set("statistics",
          plan_.options.statistics != nullptr ? plan_.options.statistics->identity() : "none");
  Json scalings = Json::array();
  for (const TensorAction& action : plan_.actions)
    if (action.quantize)
      scalings.push(
          text(action.weight.name, ": ", describe(action.scaling), " in group ", action.group));
  out.set("weights", std::move(scalings));
  return out;
}

void CalibrationWalk::run(const LayerFiles& files, const std::string& needs) {
  const eval::EvalModel* const models[] = {model_.get()};
  std::vector<eval::HiddenStates> hidden;
  hidden.emplace_back(kOp, windows_.rows(), model_->shape().hidden,
                      !memory_.spills         ? ""
                      : of_.temporary.empty() ? std::filesystem::temp_directory_path().string()
                                              : of_.temporary);
  eval::WalkState state(kOp, work_, models, windows_, identity());
  eval::Differences none;
  std::int64_t next = state.restore(hidden, none);
  if (of_.on_begin) of_.on_begin(needs);
  eval::EvalProgress progress(kOp, options_.on_progress,
                              bytes_from(std::max<std::int64_t>(next, 0)));
  progress.say_on_cancel("with resume the same call goes on from the last layer");
  const eval::WalkedModel walked[] = {{model_.get(), hidden.data()}};
  if (next < 0) {
    eval::walk_embedding({.models = walked, .windows = &windows_});
    next = 0;
  }
  const GptqOptions how = gptq_options();
  for (std::int64_t layer = next; layer < layers(); ++layer) {
    const std::int64_t bytes = files_.layer_nbytes(layer);
    const std::string current = text("layer ", layer, " of ", layers());
    const LayerCodes codes = quantize_layer(
        {.layer = files_.load_layer(layer).parts().layer,
         .windows = windows_,
         .hidden = hidden.front(),
         .weights = weights_,
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
  rounded_ = weights_.unread();
  // Those of layers that an earlier process did are among them.
  std::erase_if(rounded_, [&](const std::string& name) {
    const std::int64_t layer = layer_in_name(name);
    return layer >= 0 && layer < next;
  });
}

void CalibrationWalk::finish(const LayerFiles& files) const {
  files.remove(layers());
  const eval::EvalModel* const models[] = {model_.get()};
  eval::WalkState(kOp, work_, models, windows_, Json::object({})).remove();
}

std::vector<std::string> CalibrationWalk::notes() const {
  std::vector<std::string> out;
  std::int64_t widest = 0;
  for (const TensorAction& action : plan_.actions)
    if (action.quantize && action.weight.shape.rank() == 2)
      widest = std::max(widest, action.weight.shape[1]);
  if (windows_.rows() < widest)
    out.push_back(text("calibrated on ", windows_.rows(), " tokens, fewer than the ", widest,
                       " channels of the widest product: damping fills in for the rest; give "
                       "more text"));
  if (!rounded_.empty())
    out.push_back(text(rounded_.size(), rounded_.size() == 1 ? " weight is" : " weights are",
                       " of no decoder layer that octavo runs and were rounded to nearest: ",
                       shown(rounded_.front(), 160), rounded_.size() > 1 ? ", ..." : ""));
  return out;
}

std::int64_t CalibrationWalk::bytes_from(std::int64_t layer) const {
  std::int64_t bytes = 0;
  for (std::int64_t i = layer; i < layers(); ++i) bytes += files_.layer_nbytes(i);
  return bytes;
}

}  // namespace octavo::gptq_detail
