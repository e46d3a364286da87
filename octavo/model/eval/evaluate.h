// evaluate: perplexity of models on texts, and how far they are from an original: KL divergence,
// top-1 agreement, hidden states after each layer.
//   const ModelEvaluation seen = evaluate({"model-mxfp4/", "model-nvfp4/"},
//                                         {.against = "model/", .texts = {read_text_file(...)}});
// Models are walked layer by layer from their files, all tokens at once: one layer's weights are in
// memory at a time, so a model of any size fits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/base/progress.h"
#include "octavo/model/eval/eval_text.h"
#include "octavo/report/model_evaluation.h"
#include "octavo/tensor/dtype.h"

namespace octavo {

struct EvaluateOptions {
  std::string against{};  // path of the original; empty: none
  std::vector<EvalText> texts{};
  // Tokens that see each other. 0: 2048, or what the models can take, whichever is less.
  std::int64_t window = 0;
  std::int64_t tokens = 0;  // of each text, from its beginning; 0: all
  // Of all models, the original too: ModelFilesOptions::activations.
  DType activations = DType::f32;
  // Of the whole process, about: a layer's weights, its work on 2048 tokens or on one window, and
  // hidden states, which are in a temporary file where they would exceed it. No number depends on
  // it. Less than a layer and its work is refused.
  std::uint64_t max_memory = std::uint64_t{4} << 30;
  std::string temporary{};  // folder of that file; empty: the system's
  // A folder for the state after each layer: an evaluation that ended before it was done goes on
  // from there. It is emptied of it when all is done, or by remove_evaluation_state() where the
  // caller keeps it until the result is in a safe place.
  std::string resume{};
  bool keep_state = false;
  int threads = 0;  // 0: all; no number depends on it
  OnProgress on_progress{};
};

// Throws Error(io) where it is cancelled. The models must have the original's number of layers,
// width and vocabulary, where there is one.
[[nodiscard]] OCTAVO_API ModelEvaluation evaluate(const std::vector<std::string>& models,
                                                  const EvaluateOptions& options);
// Of the folder EvaluateOptions::resume, which goes too where nothing else is in it.
OCTAVO_API void remove_evaluation_state(const std::string& resume);

}  // namespace octavo
