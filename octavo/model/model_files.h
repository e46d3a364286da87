// ModelFiles: a decoder on disk, whose parts are read when they are asked for. What walks a model
// layer by layer (eval, gptq) holds one at a time; what generates (decoder.h) loads all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/model/decoder_layer.h"
#include "octavo/model/model_config.h"
#include "octavo/model/tokenizer/tokenizer.h"
#include "octavo/nn/embedding.h"
#include "octavo/nn/frozen_linear.h"
#include "octavo/nn/norm_layer.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

struct ModelFilesOptions {
  // Of plain weights in memory: the type they have in the files unless told otherwise. Codes stay
  // codes.
  std::optional<DType> weights{};
  // Codes whose inputs are codes too are packed for this CPU's matrix instructions: for few rows.
  bool pack = false;
  // What enters products and attention where the checkpoint does not say that it is quantized: f32,
  // or rounded to bf16, as servers of bf16 checkpoints compute: faster where the CPU multiplies
  // bf16.
  DType activations = DType::f32;
  Device device{};  // the CPU; others are refused today
  int threads = 0;
};

// A Linear, and how many channels enter it.
struct LayerInput {
  std::string module{};
  std::int64_t width = 0;
};

class OCTAVO_API ModelFiles {
 public:
  // Opens the files and checks config and tensors: an architecture, RoPE type or activation that
  // octavo does not know is named, and so is a missing or misshapen tensor. Reads no weights.
  explicit ModelFiles(const std::string& path, const ModelFilesOptions& options = {});
  ~ModelFiles();
  ModelFiles(ModelFiles&&) noexcept;
  ModelFiles& operator=(ModelFiles&&) noexcept;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] const ModelConfig& config() const;
  // Contents of a file beside the weights, or made from a GGUF file's metadata, by its name
  // ("tokenizer.json"); empty where there is none.
  [[nodiscard]] std::string text_file(const std::string& name) const;
  // By its tokenizer.json. Throws Error(invalid_argument) where there is none, Error(unsupported)
  // for one of another kind than octavo knows.
  [[nodiscard]] Tokenizer load_tokenizer() const;
  // One number that tells a model from another: of its config, of names and shapes of tensors, and
  // of bytes at some places of each, which are read for it.
  [[nodiscard]] std::uint64_t fingerprint() const;

  [[nodiscard]] DecoderLayer load_layer(std::int64_t index) const;
  // Rows of the embedding, scaled as the model scales them, into [ids.size(), hidden_size] of f32
  // or bf16: reads those rows alone. An id beyond the vocabulary is an error that names it.
  void embed(std::span<const std::int32_t> ids, const View& into) const;
  // The final norm, in place: [rows, hidden_size].
  void final_norm(const View& hidden) const;
  // The whole embedding as values, for a model that is in memory.
  [[nodiscard]] Embedding load_embedding() const;
  [[nodiscard]] const NormLayer& load_norm() const;  // the final one
  [[nodiscard]] bool has_tied_head() const;          // the head's rows are the embedding's
  // The head's rows [first, first + count) as a weight; logits are hidden times their transpose,
  // then soft-capped where the config says so. Tied heads are the embedding's rows.
  [[nodiscard]] LinearWeight load_head(std::int64_t first, std::int64_t count) const;
  // How a server quantizes or rounds what enters the head.
  [[nodiscard]] InputQuantization head_input() const;
  // Of the Linears of a layer, by the names that observers hear.
  [[nodiscard]] std::vector<LayerInput> layer_inputs(std::int64_t index) const;
  [[nodiscard]] std::int64_t layer_nbytes(std::int64_t index) const;  // as it will be in memory

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo
