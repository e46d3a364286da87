// Builds a decoder layer from a checkpoint's tensors, by the names that Hugging Face's models have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "octavo/model/decoder_layer.h"
#include "octavo/model/expert_stacks_internal.h"
#include "octavo/model/model_config.h"
#include "octavo/model/model_files.h"
#include "octavo/model/weight_files_internal.h"

namespace octavo {

class LayerBuilder {
 public:
  // `prefix`: of the names of layers, "model.". All of them outlive this object.
  LayerBuilder(const WeightFiles& files, const ModelConfig& config, const std::string& prefix,
               const std::vector<std::shared_ptr<const RotaryEmbedding>>& ropes,
               const ModelFilesOptions& options)
      : files_(files), config_(config), prefix_(prefix), ropes_(ropes), options_(options) {}

  [[nodiscard]] TransformerLayer build(std::int64_t index) const;
  // Throws Error(invalid_argument) that names a tensor of the layer which is missing or misshapen.
  // Returns the bytes that its weights will have in memory. Reads none of them.
  [[nodiscard]] std::int64_t check_layer(std::int64_t index) const;
  [[nodiscard]] std::vector<LayerInput> inputs(std::int64_t index) const;  // of a checked layer

 private:
  struct Matrix {
    std::string module;
    std::int64_t out = 0, in = 0;
    bool bias = false;
  };
  // All experts' matrices in one tensor.
  struct Stack {
    std::string name;
    StackShape shape{};
    bool bias = false;
  };
  // The matrices and vectors of a layer, as they are in the files.
  [[nodiscard]] std::vector<Matrix> attention_matrices(const std::string& at) const;
  [[nodiscard]] std::vector<Matrix> mlp_matrices(const std::string& at, std::int64_t mid) const;
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> norms(
      const std::string& at) const;
  [[nodiscard]] std::string experts_at(const std::string& at) const;
  [[nodiscard]] bool has_stack(const std::string& at) const;
  [[nodiscard]] std::vector<Matrix> expert_matrices(const std::string& at,
                                                    std::int64_t expert) const;
  [[nodiscard]] Matrix router(const std::string& at) const;

  [[nodiscard]] NormLayer norm(const std::string& name) const;
  [[nodiscard]] FrozenLinear linear(const Matrix& matrix) const;
  // How the input of a weight is quantized or rounded.
  [[nodiscard]] InputQuantization input_of(const std::string& weight) const;
  // Those that can be one matrix, joined.
  [[nodiscard]] std::vector<FrozenLinear> joined(const std::vector<Matrix>& matrices) const;
  [[nodiscard]] FrozenLinear packed(FrozenLinear linear) const;
  [[nodiscard]] MlpActivation activation() const;
  [[nodiscard]] Mlp mlp(const std::string& at, std::int64_t mid) const;
  [[nodiscard]] MixtureOfExperts experts(const std::string& at) const;
  void take_stacks(const std::string& at, MixtureOfExperts& out) const;
  void take_matrices(const std::string& at, MixtureOfExperts& out) const;
  [[nodiscard]] MultiheadAttention attention(const std::string& at, std::int64_t index) const;
  [[nodiscard]] std::vector<Stack> stacks(const std::string& at) const;  // gate and up, then down
  void check_matrix(const Matrix& matrix, std::int64_t& bytes) const;
  void check_stack(const Stack& stack, std::int64_t& bytes) const;

  const WeightFiles& files_;
  const ModelConfig& config_;
  const std::string& prefix_;
  const std::vector<std::shared_ptr<const RotaryEmbedding>>& ropes_;
  const ModelFilesOptions& options_;
};

}  // namespace octavo
