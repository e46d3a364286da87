// CalibrationWalk: a model's layers quantized by GPTQ one after the other, on the tokens of texts,
// with codes and state of each in the work folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "octavo/model/eval/layer_walk_internal.h"
#include "octavo/model/gptq/gptq_checkpoint.h"
#include "octavo/model/gptq/layer_files_internal.h"
#include "octavo/model/gptq/planned_weights_internal.h"
#include "octavo/model/model_files.h"

namespace octavo::gptq_detail {

class CalibrationWalk {
 public:
  // Opens the model and cuts the texts into tokens.
  CalibrationWalk(const CheckpointReader& source, const QuantizePlan& plan,
                  const QuantizeCheckpointOptions& options, const GptqCalibration& calibration,
                  std::string work);

  [[nodiscard]] const std::string& work() const { return work_; }
  // Tells these codes from others: damping, columns, texts.
  [[nodiscard]] std::string method() const;
  [[nodiscard]] std::int64_t layers() const { return files_.config().layers; }
  // Throws for everything that can be known before the first layer. Writes nothing. Returns what
  // the walk will need, in words.
  [[nodiscard]] std::string check();
  // All layers, or with option resume those that an earlier process has not stored. on_begin is
  // told `needs` when the state is known to be of this call.
  void run(const LayerFiles& files, const std::string& needs);
  void finish(const LayerFiles& files) const;  // removes codes and state
  // For the report, after run().
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  void check_plan() const;
  void check_work_folder() const;
  [[nodiscard]] Json identity() const;
  [[nodiscard]] std::int64_t bytes_from(std::int64_t layer) const;
  [[nodiscard]] GptqOptions gptq_options() const {
    return {.damping = of_.damping, .order = of_.order, .threads = options_.threads};
  }

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const QuantizeCheckpointOptions& options_;
  const GptqCalibration& of_;
  std::string work_;
  std::unique_ptr<eval::EvalModel> model_;
  ModelFiles files_;
  eval::TokenWindows windows_;
  PlannedWeights weights_;
  eval::MemoryPlan memory_;
  std::vector<std::string> rounded_;
};

}  // namespace octavo::gptq_detail
