// Shared by the model tests: a small random decoder as files, and its logits computed in f64 by
// plain loops that share no code with the layers.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/checkpoint_testing_internal.h"

namespace octavo {

using Matrix64 = std::vector<std::vector<double>>;

struct TinyModel {
  std::int64_t vocabulary = 50, hidden = 24, layers = 2, heads = 4, kv_heads = 2, head_size = 6,
               mid = 40, window = 0, experts = 0, top_k = 0;
  bool qk_norm = false, tied = false;
  bool expert_biases = false;
  std::vector<TestTensor> tensors{};
  std::map<std::string, std::vector<float>> values{};

  void add(const std::string& name, std::vector<std::uint64_t> shape, double around,
           double spread) {
    TestTensor tensor = random_tensor(name, std::move(shape), static_cast<unsigned>(tensors.size()),
                                      safetensors::StoredType::f32);
    std::vector<float> numbers(tensor.bytes.size() / 4);
    std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
    for (float& number : numbers)  // of random_tensor's spread of 0.02
      number = static_cast<float>(around + static_cast<double>(number) * spread / 0.02);
    std::memcpy(tensor.bytes.data(), numbers.data(), tensor.bytes.size());
    values[name] = std::move(numbers);
    tensors.push_back(std::move(tensor));
  }

  void fill() {
    const auto u = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
    add("model.embed_tokens.weight", {u(vocabulary), u(hidden)}, 0.0, 1.0);
    add("model.norm.weight", {u(hidden)}, 1.0, 0.2);
    if (!tied) add("lm_head.weight", {u(vocabulary), u(hidden)}, 0.0, 0.2);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::string at = text("model.layers.", layer, ".");
      add(at + "input_layernorm.weight", {u(hidden)}, 1.0, 0.2);
      add(at + "post_attention_layernorm.weight", {u(hidden)}, 1.0, 0.2);
      add(at + "self_attn.q_proj.weight", {u(heads * head_size), u(hidden)}, 0.0, 0.2);
      add(at + "self_attn.k_proj.weight", {u(kv_heads * head_size), u(hidden)}, 0.0, 0.2);
      add(at + "self_attn.v_proj.weight", {u(kv_heads * head_size), u(hidden)}, 0.0, 0.2);
      add(at + "self_attn.o_proj.weight", {u(hidden), u(heads * head_size)}, 0.0, 0.2);
      if (qk_norm) {
        add(at + "self_attn.q_norm.weight", {u(head_size)}, 1.0, 0.2);
        add(at + "self_attn.k_norm.weight", {u(head_size)}, 1.0, 0.2);
      }
      if (experts > 0) add(at + "mlp.gate.weight", {u(experts), u(hidden)}, 0.0, 0.3);
      for (std::int64_t expert = 0; expert < std::max<std::int64_t>(experts, 1); ++expert) {
        const std::string mlp = experts > 0 ? text(at, "mlp.experts.", expert, ".") : at + "mlp.";
        add(mlp + "gate_proj.weight", {u(mid), u(hidden)}, 0.0, 0.2);
        add(mlp + "up_proj.weight", {u(mid), u(hidden)}, 0.0, 0.2);
        add(mlp + "down_proj.weight", {u(hidden), u(mid)}, 0.0, 0.2);
        if (!expert_biases) continue;
        add(mlp + "gate_proj.bias", {u(mid)}, 0.0, 0.5);
        add(mlp + "up_proj.bias", {u(mid)}, 0.0, 0.5);
        add(mlp + "down_proj.bias", {u(hidden)}, 0.0, 0.5);
      }
    }
  }

  // What fill() made for each expert becomes one tensor of all; `values` stay as they are.
  void stack_experts() {
    const auto u = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
    const auto stacked = [&](const std::string& name, std::vector<std::uint64_t> shape,
                             const std::string& at, const std::vector<std::string>& parts) {
      TestTensor all{{name, safetensors::StoredType::f32, std::move(shape)}, {}};
      for (std::int64_t expert = 0; expert < experts; ++expert)
        for (const std::string& part : parts) {
          const auto bytes = std::as_bytes(std::span(values.at(text(at, expert, ".", part))));
          all.bytes.insert(all.bytes.end(), bytes.begin(), bytes.end());
        }
      tensors.push_back(std::move(all));
    };
    std::erase_if(tensors, [](const TestTensor& one) { return has(one.plan.name, ".experts."); });
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::string at = text("model.layers.", layer, ".mlp.experts.");
      stacked(at + "gate_up_proj", {u(experts), u(2 * mid), u(hidden)}, at,
              {"gate_proj.weight", "up_proj.weight"});
      stacked(at + "down_proj", {u(experts), u(hidden), u(mid)}, at, {"down_proj.weight"});
      if (!expert_biases) continue;
      stacked(at + "gate_up_proj_bias", {u(experts), u(2 * mid)}, at,
              {"gate_proj.bias", "up_proj.bias"});
      stacked(at + "down_proj_bias", {u(experts), u(hidden)}, at, {"down_proj.bias"});
    }
  }

  [[nodiscard]] Json config() const {
    const bool moe = experts > 0;
    Json out = Json::object({{"model_type", moe       ? "qwen3_moe"
                                            : qk_norm ? "qwen3"
                                                      : "mistral"},
                             {"vocab_size", vocabulary},
                             {"hidden_size", hidden},
                             {"intermediate_size", mid},
                             {"num_hidden_layers", layers},
                             {"num_attention_heads", heads},
                             {"num_key_value_heads", kv_heads},
                             {"head_dim", head_size},
                             {"max_position_embeddings", 64},
                             {"rms_norm_eps", 1e-5},
                             {"rope_theta", 1e4},
                             {"eos_token_id", 3},
                             {"tie_word_embeddings", tied}});
    out.set("use_sliding_window", window > 0);
    out.set("sliding_window", window > 0 ? Json(window) : Json());
    if (moe) {
      out.set("num_experts", experts);
      out.set("num_experts_per_tok", top_k);
      out.set("moe_intermediate_size", mid);
      out.set("norm_topk_prob", true);
    }
    return out;
  }
};

// y = x w^T, [rows, out].
inline Matrix64 times(const Matrix64& x, const std::vector<float>& w) {
  Matrix64 out(x.size());
  for (std::size_t row = 0; row < x.size(); ++row) {
    const std::size_t in = x[row].size();
    for (std::size_t n = 0; n < w.size() / in; ++n) {
      double sum = 0.0;
      for (std::size_t k = 0; k < in; ++k) sum += x[row][k] * static_cast<double>(w[n * in + k]);
      out[row].push_back(sum);
    }
  }
  return out;
}

inline void norm_in_place(double* x, std::size_t n, const std::vector<float>& weight) {
  double squares = 0.0;
  for (std::size_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const double by = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
  for (std::size_t i = 0; i < n; ++i) x[i] *= by * static_cast<double>(weight[i]);
}

inline Matrix64 normed(Matrix64 x, const std::vector<float>& weight) {
  for (auto& row : x) norm_in_place(row.data(), row.size(), weight);
  return x;
}

inline void rotate(double* head, std::size_t size, std::size_t position) {
  const std::size_t pairs = size / 2;
  for (std::size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(position) *
                         std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(size));
    const double a = head[i], b = head[i + pairs];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + pairs] = b * std::cos(angle) + a * std::sin(angle);
  }
}

class TinyOracle {
 public:
  explicit TinyOracle(const TinyModel& model) : m_(model) {}

  [[nodiscard]] Matrix64 logits(const std::vector<std::int32_t>& ids) const {
    Matrix64 h;
    const auto& table = value("model.embed_tokens.weight");
    for (const std::int32_t id : ids) {
      const auto first = table.begin() + id * m_.hidden;
      h.emplace_back(first, first + m_.hidden);
    }
    for (std::int64_t layer = 0; layer < m_.layers; ++layer) {
      const std::string at = text("model.layers.", layer, ".");
      add_to(h, attention(normed(h, value(at + "input_layernorm.weight")), at + "self_attn."));
      add_to(h, mlp(normed(h, value(at + "post_attention_layernorm.weight")), at + "mlp."));
    }
    h = normed(h, value("model.norm.weight"));
    return times(h, value(m_.tied ? "model.embed_tokens.weight" : "lm_head.weight"));
  }

 private:
  [[nodiscard]] const std::vector<float>& value(const std::string& name) const {
    return m_.values.at(name);
  }
  static void add_to(Matrix64& h, const Matrix64& more) {
    for (std::size_t row = 0; row < h.size(); ++row)
      for (std::size_t i = 0; i < h[row].size(); ++i) h[row][i] += more[row][i];
  }

  [[nodiscard]] Matrix64 attention(const Matrix64& x, const std::string& at) const {
    const auto size = static_cast<std::size_t>(m_.head_size);
    Matrix64 q = times(x, value(at + "q_proj.weight")), k = times(x, value(at + "k_proj.weight"));
    const Matrix64 v = times(x, value(at + "v_proj.weight"));
    const auto turn = [&](Matrix64& rows, const std::string& norm) {
      for (std::size_t token = 0; token < rows.size(); ++token)
        for (std::size_t head = 0; head < rows[token].size() / size; ++head) {
          double* one = rows[token].data() + head * size;
          if (m_.qk_norm) norm_in_place(one, size, value(at + norm));
          rotate(one, size, token);
        }
    };
    turn(q, "q_norm.weight");
    turn(k, "k_norm.weight");
    Matrix64 out(x.size());
    const auto group = static_cast<std::size_t>(m_.heads / m_.kv_heads);
    for (std::size_t token = 0; token < x.size(); ++token)
      for (std::size_t head = 0; head < static_cast<std::size_t>(m_.heads); ++head) {
        const std::size_t kv = head / group * size;
        std::vector<double> weights(token + 1, 0.0), mixed(size, 0.0);
        double sum = 0.0;
        for (std::size_t key = 0; key <= token; ++key) {
          if (m_.window > 0 && token - key >= static_cast<std::size_t>(m_.window)) continue;
          double score = 0.0;
          for (std::size_t i = 0; i < size; ++i)
            score += q[token][head * size + i] * k[key][kv + i];
          sum += weights[key] = std::exp(score / std::sqrt(static_cast<double>(size)));
        }
        for (std::size_t key = 0; key <= token; ++key)
          for (std::size_t i = 0; i < size; ++i) mixed[i] += weights[key] / sum * v[key][kv + i];
        out[token].insert(out[token].end(), mixed.begin(), mixed.end());
      }
    return times(out, value(at + "o_proj.weight"));
  }

  [[nodiscard]] Matrix64 linear(const Matrix64& x, const std::string& module) const {
    Matrix64 out = times(x, value(module + ".weight"));
    const auto bias = m_.values.find(module + ".bias");
    if (bias == m_.values.end()) return out;
    for (auto& row : out)
      for (std::size_t i = 0; i < row.size(); ++i) row[i] += static_cast<double>(bias->second[i]);
    return out;
  }

  [[nodiscard]] Matrix64 gated(const Matrix64& x, const std::string& at) const {
    Matrix64 gate = linear(x, at + "gate_proj");
    const Matrix64 up = linear(x, at + "up_proj");
    for (std::size_t row = 0; row < gate.size(); ++row)
      for (std::size_t i = 0; i < gate[row].size(); ++i)
        gate[row][i] *= up[row][i] / (1.0 + std::exp(-gate[row][i]));
    return linear(gate, at + "down_proj");
  }

  [[nodiscard]] Matrix64 mlp(const Matrix64& x, const std::string& at) const {
    if (m_.experts == 0) return gated(x, at);
    const Matrix64 logits = times(x, value(at + "gate.weight"));
    Matrix64 out;
    for (std::size_t token = 0; token < x.size(); ++token) {
      std::vector<std::size_t> order(logits[token].size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::sort(order, [&](auto a, auto b) { return logits[token][a] > logits[token][b]; });
      order.resize(static_cast<std::size_t>(m_.top_k));
      double sum = 0.0;
      for (const std::size_t expert : order) sum += std::exp(logits[token][expert]);
      std::vector<double> row(x[token].size(), 0.0);
      for (const std::size_t expert : order) {
        const Matrix64 one = gated({x[token]}, text(at, "experts.", expert, "."));
        for (std::size_t i = 0; i < row.size(); ++i)
          row[i] += std::exp(logits[token][expert]) / sum * one[0][i];
      }
      out.push_back(std::move(row));
    }
    return out;
  }

  const TinyModel& m_;
};

}  // namespace octavo
