// EvalModel: what evaluation and calibration need of a model. ModelFiles is one (eval_model.cc); a
// test can be another, made by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/model/decoder_layer.h"
#include "octavo/model/model_files.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/tensor/view.h"

namespace octavo::eval {

struct EvalShape {
  std::int64_t vocabulary = 0, hidden = 0, layers = 0;
  std::int64_t max_positions = 0;  // 0: any number
  double logits_cap = 0.0;         // cap * tanh(logit / cap); 0: none
  DType activations = DType::f32;  // what inputs are rounded to that the files do not quantize
};

// Hidden states [windows, tokens, hidden] of f32, updated in place; every window begins at
// position 0. The layer's weights live as long as the function does.
using EvalLayer = std::function<void(const View& hidden, const LayerObserver* observer)>;

// Members may be called from several threads.
class EvalModel {
 public:
  virtual ~EvalModel() = default;

  [[nodiscard]] virtual const std::string& name() const = 0;  // its path
  [[nodiscard]] virtual const EvalShape& shape() const = 0;
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  [[nodiscard]] virtual bool has_tokenizer() const = 0;
  [[nodiscard]] virtual std::vector<std::int32_t> tokenize(std::string_view text) const = 0;

  [[nodiscard]] virtual EvalLayer load_layer(std::int64_t index) const = 0;
  [[nodiscard]] virtual std::int64_t layer_nbytes(std::int64_t index) const = 0;
  // The Linears that an observer will hear of.
  [[nodiscard]] virtual std::vector<LayerInput> layer_inputs(std::int64_t index) const = 0;
  // About the memory of a layer's forward on this number of tokens.
  [[nodiscard]] virtual std::int64_t scratch_nbytes(std::int64_t tokens) const = 0;

  virtual void embed(std::span<const std::int32_t> ids, const View& into) const = 0;
  virtual void final_norm(const View& hidden) const = 0;  // [rows, hidden], in place
  [[nodiscard]] virtual InputQuantization head_input() const {
    return {.values = shape().activations};
  }
  [[nodiscard]] virtual LinearWeight load_head(std::int64_t first, std::int64_t count) const = 0;
};

// Throws what ModelFiles throws.
[[nodiscard]] std::unique_ptr<EvalModel> open_eval_model(const std::string& path,
                                                         const ModelFilesOptions& options);

}  // namespace octavo::eval
