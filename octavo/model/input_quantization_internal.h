// How the serving engines quantize the inputs of a checkpoint's Linears: what config.json and
// hf_quant_config.json declare, and the static scales beside the weights.
#pragma once

#include <memory>
#include <string>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/checkpoint/verify/verify_internal.h"
#include "octavo/nn/frozen_linear.h"

namespace octavo {

class InputQuantizations {
 public:
  InputQuantizations(const CheckpointReader& checkpoint, const Recognized& recognized);
  // Of the Linear whose weight this is. Weights that servers multiply without quantizing the input
  // (4 and 6 bits, unless the config says otherwise) have none, and so have octavo's own files.
  [[nodiscard]] InputQuantization of(const FoundWeight& found) const;

 private:
  [[nodiscard]] InputQuantization declared(const QuantizedWeight& weight) const;
  [[nodiscard]] InputQuantization usual(const QuantizedWeight& weight) const;
  [[nodiscard]] InputQuantization with_static_scale(const std::string& module,
                                                    InputQuantization input) const;

  const CheckpointReader& checkpoint_;
  Dialect dialect_;
  const Json& words_;
  ConfigGroups groups_;
};

}  // namespace octavo
