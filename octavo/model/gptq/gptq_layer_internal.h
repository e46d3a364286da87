// One decoder layer by GPTQ: its products one after the other, each with the Hessian of what enters
// it when all before it are quantized already, in this layer, too. Q, K and V have one input and so
// one Hessian; gate and up another.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "octavo/model/eval/hidden_states_internal.h"
#include "octavo/model/eval/token_windows_internal.h"
#include "octavo/model/gptq/gptq.h"
#include "octavo/model/gptq/planned_weights_internal.h"
#include "octavo/nn/transformer_layer.h"

namespace octavo::gptq_detail {

using LayerCodes = std::map<std::string, GptqResult>;  // by the weight's name

struct LayerWork {
  TransformerLayer layer;  // its weights become those of the codes
  const eval::TokenWindows& windows;
  eval::HiddenStates& hidden;  // what enters the layer; afterwards what leaves it
  PlannedWeights& weights;
  const GptqOptions& options;
  std::function<void(double)> progress;  // the part of the layer that is done
};

// Throws what gptq() throws, with the names of modules.
[[nodiscard]] LayerCodes quantize_layer(LayerWork work);

}  // namespace octavo::gptq_detail
