// Linear layer, y = x w^T + bias, with parameters, forward and backward:
//   Linear layer(in, out);
//   Tensor y;
//   {
//     const auto scope = autocast(MXFP8BlockScaling{});
//     y = layer.forward(x);
//   }
//   Tensor dx = layer.backward(dy);  // layer.weight_grad(), layer.bias_grad()
// Outside of an autocast scope it multiplies values, in f64 where x or the weight is. Threads may
// share a layer: their calls of forward, backward and set_quantized_weight are serialized by a
// mutex, each under the recipe of its own thread's scope. Each thread passes its own LinearSaved,
// since "the last forward" may be another thread's; what the layer returns by reference (gradients,
// caches, parameters) is valid while no call is running.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/recipe/module_quantizers.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

struct LinearOptions {
  bool bias = true;
  DType params_dtype = DType::f32;
  Device device{};
  std::string name{};
  std::uint64_t seed = 0;  // of the first weights, and of stochastic rounding
  WarningHook warn{};
  LinearRun run{};
};

struct LinearForward {
  // False: nothing is saved for backward, and delayed scaling records no amax.
  bool training = true;
  bool needs_dx = true;                       // false for a first layer
  std::optional<bool> is_first_microbatch{};  // see LinearCall
};

class OCTAVO_API Linear {
 public:
  // Weights are drawn from a normal distribution of deviation 0.023, Transformer Engine's default
  // and octavo.torch's; the bias is zero. Inside quantized_model_init the weight is kept as codes,
  // rowwise and columnwise, and nothing else.
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});
  // With existing parameters: [out, in] and [out], or no bias. They stay shared with the caller,
  // except that quantized_model_init quantizes the weight.
  explicit Linear(const Tensor& weight, const Tensor& bias = {}, const LinearOptions& options = {});

  [[nodiscard]] Tensor forward(const Tensor& x, const LinearForward& options = {});
  // For the last forward, once. Gradients of parameters are accumulated.
  [[nodiscard]] Tensor backward(const Tensor& dy);
  // The same for several forwards in flight, each with its own LinearSaved.
  [[nodiscard]] Tensor forward(const Tensor& x, LinearSaved& saved,
                               const LinearForward& options = {});
  [[nodiscard]] Tensor backward(const Tensor& dy, const LinearSaved& saved);

  [[nodiscard]] std::int64_t in_features() const { return weight_.shape()[1]; }
  [[nodiscard]] std::int64_t out_features() const { return weight_.shape()[0]; }
  // Memory that an optimizer may write; empty where the weight is codes, or there is no bias.
  [[nodiscard]] const Tensor& weight() const { return weight_.values; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }
  [[nodiscard]] const QuantizedTensor* quantized_weight() const { return weight_.codes.get(); }
  // New values for a weight that is codes.
  void set_quantized_weight(const View& values);
  // Of the constructor, where quantized_model_init was told to keep them.
  [[nodiscard]] const Tensor& high_precision_init_val() const { return init_values_; }
  void clear_high_precision_init_val() { init_values_ = {}; }

  [[nodiscard]] const Tensor& weight_grad() const { return gradients_.dw; }
  [[nodiscard]] const Tensor& bias_grad() const { return gradients_.db; }
  void zero_grad();

  // Null before the first forward under a recipe. Slots: input, weight, output; grad_output,
  // grad_input.
  [[nodiscard]] const ModuleQuantizers& quantizers() const { return quantizers_; }
  [[nodiscard]] std::shared_ptr<QuantizerSet> quantizers(std::string_view key) const {
    return quantizers_.at(key);
  }

  [[nodiscard]] std::int64_t weight_nbytes() const;
  [[nodiscard]] const LinearSaved& saved() const { return saved_; }
  [[nodiscard]] const WeightCache& weight_cache() const { return cache_; }

 private:
  void quantize_weight();
  [[nodiscard]] Tensor added_gradients(const Tensor& dy, const LinearSaved& saved);

  LinearOptions options_;
  LinearWeight weight_;
  Tensor bias_, init_values_;
  ModuleQuantizers quantizers_;
  WeightCache cache_;
  LinearSaved saved_;
  LinearGradients gradients_;
};

}  // namespace octavo
