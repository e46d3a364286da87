// A handmade model whose layers mix the tokens of a window, and the plain way to compute what
// evaluation computes: everything in f64, all logits of a token at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/model/eval/eval_model_internal.h"
#include "octavo/model/eval/eval_text.h"
#include "octavo/report/model_evaluation.h"

namespace octavo::eval::testing {

// A layer: h_t becomes h_t + tanh(scale * mean of h_s, s <= t, within the window). The head and the
// embedding are random. Bytes are tokens.
class HandmadeModel : public EvalModel {
 public:
  explicit HandmadeModel(std::string name, float noise = 0.0F, std::int64_t vocabulary = 256,
                         std::int64_t hidden = 24, std::int64_t layers = 3)
      : name_(std::move(name)),
        shape_{.vocabulary = vocabulary, .hidden = hidden, .layers = layers},
        embedding_(Tensor::values({vocabulary, hidden}, DType::f32)),
        head_(Tensor::values({vocabulary, hidden}, DType::f32)) {
    std::mt19937 random(1), other(2);
    std::normal_distribution<float> normal;
    for (Tensor* tensor : {&embedding_, &head_})
      for (float& value : tensor->span<float>()) value = normal(random) + noise * normal(other);
  }

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const EvalShape& shape() const override { return shape_; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] bool has_tokenizer() const override { return has_tokenizer_; }
  [[nodiscard]] std::vector<std::int32_t> tokenize(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  [[nodiscard]] EvalLayer load_layer(std::int64_t index) const override {
    return [this, index](const View& hidden, const LayerObserver* observer) {
      if (on_layer_) on_layer_(index);
      if (observer != nullptr) observe(index, hidden, *observer);
      for (std::int64_t window = 0; window < hidden.shape[0]; ++window)
        pass_window(static_cast<float*>(hidden.data) + window * hidden.shape[1] * shape_.hidden,
                    hidden.shape[1], index);
    };
  }
  [[nodiscard]] std::int64_t layer_nbytes(std::int64_t) const override { return 1000; }
  [[nodiscard]] std::vector<LayerInput> layer_inputs(std::int64_t index) const override {
    return {{"model.layers." + std::to_string(index) + ".mlp.up_proj", shape_.hidden}};
  }
  [[nodiscard]] std::int64_t scratch_nbytes(std::int64_t tokens) const override { return tokens; }
  void embed(std::span<const std::int32_t> ids, const View& into) const override {
    auto* out = static_cast<float*>(into.data);
    for (const std::int32_t id : ids)
      out = std::copy_n(embedding_.span<float>().data() + id * shape_.hidden, shape_.hidden, out);
  }
  void final_norm(const View& hidden) const override {
    auto* const data = static_cast<float*>(hidden.data);
    for (std::int64_t i = 0; i < element_count(hidden.shape); ++i) data[i] *= 0.5F;
  }
  [[nodiscard]] LinearWeight load_head(std::int64_t first, std::int64_t count) const override {
    Tensor rows = Tensor::values({count, shape_.hidden}, DType::f32);
    std::copy_n(head_.span<float>().data() + first * shape_.hidden, count * shape_.hidden,
                rows.span<float>().data());
    return {.values = rows};
  }

  void pass_window(float* hidden, std::int64_t tokens, std::int64_t index) const {
    std::vector<float> mean(static_cast<std::size_t>(shape_.hidden));
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t i = 0; i < shape_.hidden; ++i) {
        float& sum = mean[static_cast<std::size_t>(i)];
        float& value = hidden[t * shape_.hidden + i];
        sum += value;
        value += std::tanh(static_cast<float>(index + 1) * sum / static_cast<float>(t + 1));
      }
  }

  std::string name_;
  EvalShape shape_;
  std::uint64_t fingerprint_ = 7;
  bool has_tokenizer_ = true;
  Tensor embedding_, head_;
  std::function<void(std::int64_t layer)> on_layer_{};

 private:
  static void observe(std::int64_t index, const View& hidden, const LayerObserver& observer) {
    const std::string layer = "model.layers." + std::to_string(index);
    const View rows =
        value_view(hidden.data, DType::f32, {hidden.shape[0] * hidden.shape[1], hidden.shape[2]});
    if (observer.on_input) observer.on_input(layer + ".mlp.up_proj", rows);
    if (observer.on_cache) {
      const View heads = value_view(hidden.data, DType::f32,
                                    {1, 2, hidden.shape[0] * hidden.shape[1], hidden.shape[2] / 2});
      observer.on_cache(layer + ".self_attn", heads, heads);
    }
    if (observer.on_routing) {
      const std::vector<std::int64_t> tokens{rows.shape[0], 0, 3};
      observer.on_routing(layer + ".mlp.gate", tokens);
    }
  }
};

// Of one token, by the definition.
struct PlainToken {
  double loss = 0, kl = 0;
  std::int32_t top = 0;
};

// Hidden states of the tokens of one window, [tokens][hidden], after all layers and the norm.
inline std::vector<float> plain_hidden(const HandmadeModel& model,
                                       std::span<const std::int32_t> ids) {
  std::vector<float> hidden(ids.size() * static_cast<std::size_t>(model.shape_.hidden));
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const View view = value_view(hidden.data(), DType::f32, {tokens, model.shape_.hidden});
  model.embed(ids, view);
  for (std::int64_t i = 0; i < model.shape_.layers; ++i)
    model.pass_window(hidden.data(), tokens, i);
  model.final_norm(view);
  return hidden;
}

inline std::vector<double> plain_logits(const HandmadeModel& model, const float* hidden) {
  std::vector<double> logits;
  const float* const head = model.head_.span<float>().data();
  for (std::int64_t id = 0; id < model.shape_.vocabulary; ++id) {
    double sum = 0;
    for (std::int64_t i = 0; i < model.shape_.hidden; ++i)
      sum +=
          static_cast<double>(head[id * model.shape_.hidden + i]) * static_cast<double>(hidden[i]);
    logits.push_back(sum);
  }
  return logits;
}

inline std::vector<double> plain_log_softmax(std::vector<double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  for (double& logit : logits) logit -= largest + std::log(sum);
  return logits;
}

// Of a window's tokens but the last.
inline std::vector<PlainToken> plain_tokens(const HandmadeModel& original,
                                            const HandmadeModel& model,
                                            std::span<const std::int32_t> ids) {
  const std::vector<float> p_hidden = plain_hidden(original, ids),
                           hidden = plain_hidden(model, ids);
  std::vector<PlainToken> out;
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    const std::size_t at = t * static_cast<std::size_t>(model.shape_.hidden);
    const std::vector<double> p = plain_log_softmax(plain_logits(original, &p_hidden[at]));
    const std::vector<double> q = plain_log_softmax(plain_logits(model, &hidden[at]));
    PlainToken token{.loss = -q[static_cast<std::size_t>(ids[t + 1])]};
    for (std::size_t id = 0; id < p.size(); ++id) token.kl += std::exp(p[id]) * (p[id] - q[id]);
    token.top = static_cast<std::int32_t>(std::max_element(q.begin(), q.end()) - q.begin());
    out.push_back(token);
  }
  return out;
}

// Bytes below `limit`, the same for a seed.
inline EvalText random_text(const std::string& name, std::size_t length, unsigned seed = 3,
                            int limit = 128) {
  std::mt19937 random(seed);
  std::string content;
  for (std::size_t i = 0; i < length; ++i)
    content += static_cast<char>(random() % static_cast<unsigned>(limit));
  return {.name = name, .content = content};
}

}  // namespace octavo::eval::testing
