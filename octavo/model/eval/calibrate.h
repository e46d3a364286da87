// calibrate: statistics of a model's activations on texts, for quantizers that ask for them: amax
// and E[x^2] of every Linear's input, blocks of Hessians, amax of K and V, tokens per expert.
//   const ModelStatistics seen = calibrate("model/", {.texts = {read_text_file(...)}});
//   write_statistics("stats.safetensors", seen);
// The model is walked layer by layer, as evaluate() does it.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/base/macros.h"
#include "octavo/base/progress.h"
#include "octavo/model/eval/eval_text.h"
#include "octavo/model/statistics/statistics_file.h"

namespace octavo {

struct CalibrateOptions {
  std::vector<EvalText> texts{};
  std::int64_t window = 0, tokens = 0;  // as in EvaluateOptions, and so are max_memory, temporary
  bool block_hessians = true;
  // A regular expression: modules whose name it is found in get the Hessian of all channels, K x K
  // numbers. Empty: none.
  std::string full_hessians{};
  std::uint64_t max_memory = std::uint64_t{4} << 30;
  std::string temporary{};
  // As in EvaluateOptions: a folder for the state after each layer, from which a calibration that
  // ended before it was done goes on.
  std::string resume{};
  bool keep_state = false;
  int threads = 0;  // 0: all; no number depends on it
  OnProgress on_progress{};
};

// Throws Error(io) where it is cancelled, Error(invalid_argument), before the walk, where the
// expression finds no module, or statistics and the walk together do not fit into max_memory, or
// the state in `resume` is of another model, text or option.
[[nodiscard]] OCTAVO_API ModelStatistics calibrate(const std::string& model,
                                                   const CalibrateOptions& options);
// Of the folder CalibrateOptions::resume, which goes too where nothing else is in it.
OCTAVO_API void remove_calibration_state(const std::string& resume);

}  // namespace octavo
