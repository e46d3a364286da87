// gptq_checkpoint: quantize_checkpoint with codes that GPTQ makes, on what a text makes the model's
// layers see.
//   const CheckpointReport report = gptq_checkpoint(
//       "model/", "out/", {.plan = {.recipe = "nvfp4"}}, {.texts = {read_text_file(...)}});
// The model is walked layer by layer (model/eval), in the memory of one layer, its Hessians and the
// hidden states; each layer sees what the quantized ones before it give. Then the pipeline writes
// the codes as it writes any: the same plan, dialects, scales and files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/model/eval/eval_text.h"
#include "octavo/model/gptq/gptq.h"
#include "octavo/pipeline/plan/quantize_options.h"
#include "octavo/report/checkpoint_report.h"

namespace octavo {

struct GptqCalibration {
  std::vector<EvalText> texts{};
  std::int64_t window = 0, tokens = 0;  // as in EvaluateOptions
  double damping = 0.05;
  ColumnOrder order = ColumnOrder::natural;
  std::uint64_t max_memory = std::uint64_t{4} << 30;  // of the walk; the pipeline has its own
  std::string temporary{};                            // for hidden states beyond that
  // The folder for codes until they are written, and for the state after each layer, from which a
  // call with options.resume goes on; removed at the end. Empty: `out` with ".gptq" at its end. One
  // that is not empty is refused without options.resume, and with it the state of another call:
  // other files of the model, texts, statistics or options.
  std::string work{};
  // If given, is told what memory the walk will take and for what, before the first layer.
  std::function<void(const std::string&)> on_begin{};
};

// Threads, progress and resume are those of `options`. Throws what quantize_checkpoint, evaluate
// and gptq throw; Error(unsupported) for a mixture of experts, whose experts see too little of a
// text each, and for several processes.
[[nodiscard]] OCTAVO_API CheckpointReport gptq_checkpoint(const std::string& source,
                                                          const std::string& out,
                                                          const QuantizeCheckpointOptions& options,
                                                          const GptqCalibration& calibration);

// Throws what such a call would throw before its first layer, and returns what it would tell
// on_begin. Reads all weights that are quantized, for NaN and Inf; writes nothing. `out` may be
// empty: nothing is known of it yet.
[[nodiscard]] OCTAVO_API std::string check_gptq_checkpoint(const std::string& source,
                                                           const std::string& out,
                                                           const QuantizeCheckpointOptions& options,
                                                           const GptqCalibration& calibration);

}  // namespace octavo
