// Model families as transformers and vLLM build them from config.json.
#include <algorithm>
#include <array>
#include <map>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/architecture_internal.h"

namespace octavo {
namespace {

// Differences between families.
struct Family {
  std::string_view model_type;
  std::string_view code;  // prefix of the class in `architectures`
  bool qkv_bias = false;  // always
  bool qk_norm = false;   // over each head
  bool latent = false;    // multi-head latent attention (MLA)
  bool moe = false;
  bool mixtral = false;       // Mixtral's names of experts (w1, w2, w3)
  std::int64_t head_dim = 0;  // default where config.json has none; 0: hidden_size / heads
};
constexpr std::array<Family, 9> kFamilies{{
    {.model_type = "llama", .code = "Llama"},
    {.model_type = "mistral", .code = "Mistral"},
    {.model_type = "qwen2", .code = "Qwen2", .qkv_bias = true},
    {.model_type = "qwen3", .code = "Qwen3", .qk_norm = true, .head_dim = 128},
    {.model_type = "qwen2_moe", .code = "Qwen2Moe", .qkv_bias = true, .moe = true},
    {.model_type = "qwen3_moe", .code = "Qwen3Moe", .qk_norm = true, .moe = true},
    {.model_type = "mixtral", .code = "Mixtral", .moe = true, .mixtral = true},
    {.model_type = "deepseek_v2", .code = "DeepseekV2", .latent = true, .moe = true},
    {.model_type = "deepseek_v3", .code = "DeepseekV3", .latent = true, .moe = true},
}};

constexpr std::string_view kLayers = "layers.", kExperts = ".experts.";
constexpr std::int64_t kMaxSize = (std::int64_t{1} << 31) - 1;

// 0 where the key is missing or its value is not a size.
std::int64_t size_in(const Json& config, std::string_view key) {
  const std::int64_t value = config[key].integer_or(0);
  return value > 0 && value <= kMaxSize ? value : 0;
}

std::int64_t experts_in(const Json& config) {
  std::int64_t most = 0;
  for (const std::string_view key : {"n_routed_experts", "num_experts", "num_local_experts"})
    most = std::max(most, size_in(config, key));
  return most;
}

// The number at `at` that is followed by a dot, or -1. "layers.00" is no layer: no loader looks for
// it.
std::int64_t layer_number(std::string_view name, std::size_t at) {
  std::int64_t number = 0;
  std::size_t digits = 0;
  if (name.substr(std::min(at, name.size())).starts_with("0") && !name.substr(at).starts_with("0."))
    return -1;
  for (; at < name.size() && name[at] >= '0' && name[at] <= '9' && digits < 9; ++at, ++digits)
    number = number * 10 + (name[at] - '0');
  return digits > 0 && at < name.size() && name[at] == '.' ? number : -1;
}

std::int64_t number_behind(std::string_view name, std::string_view word) {
  const std::size_t at = name.find(word);
  return at == std::string_view::npos ? -1 : layer_number(name, at + word.size());
}

class Building {
 public:
  // Layers that are missing entirely, and experts that no layer has, are not enumerated: a
  // config.json could ask for billions of them.
  Building(const Family& family, const Json& config, std::string prefix,
           const std::set<std::int64_t>& layers, const std::set<std::string>& names)
      : family_(family), config_(config), prefix_(std::move(prefix)), names_(names) {
    hidden_ = number("hidden_size");
    heads_ = number("num_attention_heads");
    for (const std::string& name : names)
      there_ = std::max(there_, number_behind(name, kExperts) + 1);
    for (const std::int64_t layer : layers) {
      layer_ = layer;
      at_ = text(prefix_, "layers.", layer, ".");
      add("input_layernorm.weight", {hidden_});
      add("post_attention_layernorm.weight", {hidden_});
      family_.latent ? add_latent_attention() : add_attention();
      is_sparse(layer) ? add_experts() : add_mlp("mlp.", number("intermediate_size"));
    }
    layer_ = -1;
    at_ = prefix_;
    add("embed_tokens.weight", {number("vocab_size"), hidden_});
    add("norm.weight", {hidden_});
  }

  // lm_head is outside the model prefix; a tied one has no tensor.
  void add_head() {
    at_.clear();
    add("lm_head.weight", {number("vocab_size"), hidden_});
  }
  [[nodiscard]] std::vector<ExpectedTensor> take() { return std::move(tensors_); }

 private:
  [[nodiscard]] std::int64_t number(std::string_view key) const { return size_in(config_, key); }
  [[nodiscard]] bool flag(std::string_view key) const { return config_[key].boolean_or(false); }
  void add(std::string_view name, std::vector<std::int64_t> shape, std::string_view instead = "") {
    tensors_.push_back({text(at_, name), std::move(shape),
                        instead.empty() ? std::string() : text(at_, instead), layer_});
  }
  // A Linear [out, in].
  void add_linear(const std::string& module, std::int64_t out, std::int64_t in, bool bias,
                  const std::string& instead = "") {
    add(module + ".weight", {out, in}, instead.empty() ? "" : instead + ".weight");
    if (bias) add(module + ".bias", {out}, instead.empty() ? "" : instead + ".bias");
  }

  void add_attention() {
    const std::int64_t kv = number("num_key_value_heads");
    std::int64_t head = number("head_dim");
    if (head == 0) head = family_.head_dim;
    // For Qwen3 and its MoE a config without head_dim does not determine it.
    const bool derived = !family_.qk_norm && heads_ > 0 && hidden_ % heads_ == 0;
    if (head == 0 && derived) head = hidden_ / heads_;
    const bool all = flag("attention_bias"), qkv = all || family_.qkv_bias;
    const bool biased = qkv && !(config_.has("qkv_bias") && !flag("qkv_bias"));
    constexpr const char* kFused = "self_attn.qkv_proj";
    add_linear("self_attn.q_proj", heads_ * head, hidden_, biased, kFused);
    add_linear("self_attn.k_proj", kv * head, hidden_, biased, kFused);
    add_linear("self_attn.v_proj", kv * head, hidden_, biased, kFused);
    add_linear("self_attn.o_proj", hidden_, heads_ * head, all && !family_.qkv_bias);
    if (!family_.qk_norm) return;
    add("self_attn.q_norm.weight", {head});
    add("self_attn.k_norm.weight", {head});
  }

  void add_latent_attention() {
    const std::int64_t nope = number("qk_nope_head_dim"), rope = number("qk_rope_head_dim"),
                       value = number("v_head_dim"), kv = number("kv_lora_rank"),
                       q = number("q_lora_rank");
    const auto sum = [](std::int64_t a, std::int64_t b) { return a > 0 && b > 0 ? a + b : 0; };
    const bool bias = flag("attention_bias");
    if (config_.has("q_lora_rank") && q == 0) {
      add_linear("self_attn.q_proj", heads_ * sum(nope, rope), hidden_, false);
    } else {
      add_linear("self_attn.q_a_proj", q, hidden_, bias);
      add("self_attn.q_a_layernorm.weight", {q});
      add_linear("self_attn.q_b_proj", heads_ * sum(nope, rope), q, false);
    }
    add_linear("self_attn.kv_a_proj_with_mqa", sum(kv, rope), hidden_, bias);
    add("self_attn.kv_a_layernorm.weight", {kv});
    add_linear("self_attn.kv_b_proj", heads_ * sum(nope, value), kv, false);
    add_linear("self_attn.o_proj", hidden_, heads_ * value, bias);
  }

  void add_mlp(const std::string& at, std::int64_t mid) {
    const bool bias = flag("mlp_bias");
    const std::string fused = at + "gate_up_proj";
    add_linear(at + "gate_proj", mid, hidden_, bias, fused);
    add_linear(at + "up_proj", mid, hidden_, bias, fused);
    add_linear(at + "down_proj", hidden_, mid, bias);
  }

  [[nodiscard]] std::int64_t experts() const { return experts_in(config_); }

  // Which layers are sparse (MoE): three config conventions.
  [[nodiscard]] bool is_sparse(std::int64_t layer) const {
    if (!family_.moe || experts() == 0) return false;
    if (family_.latent) {
      const std::int64_t every = std::max<std::int64_t>(1, number("moe_layer_freq"));
      return layer >= config_["first_k_dense_replace"].integer_or(0) && layer % every == 0;
    }
    for (const Json& dense : config_["mlp_only_layers"].elements())
      if (dense.integer_or(-1) == layer) return false;
    const std::int64_t every = std::max<std::int64_t>(1, number("decoder_sparse_step"));
    return (layer + 1) % every == 0;
  }

  void add_experts() {
    const std::int64_t count = experts();
    const bool renamed = family_.mixtral && names_.contains(text(at_, "mlp.gate.weight"));
    const std::string at = family_.mixtral && !renamed ? "block_sparse_moe." : "mlp.";
    const std::int64_t mid =
        number(family_.mixtral ? "intermediate_size" : "moe_intermediate_size");
    add(at + "gate.weight", {count, hidden_});
    if (family_.model_type == "deepseek_v3" || config_["topk_method"].string_or("") == "noaux_tc")
      add(at + "gate.e_score_correction_bias", {count});
    const std::string up = at + "experts.gate_up_proj", down = at + "experts.down_proj";
    for (std::int64_t i = 0; i < std::min(count, std::max<std::int64_t>(there_, 1)); ++i) {
      const std::string expert = text(at, "experts.", i, ".");
      add(expert + (family_.mixtral ? "w1.weight" : "gate_proj.weight"), {mid, hidden_}, up);
      add(expert + (family_.mixtral ? "w3.weight" : "up_proj.weight"), {mid, hidden_}, up);
      add(expert + (family_.mixtral ? "w2.weight" : "down_proj.weight"), {hidden_, mid}, down);
    }
    if (family_.latent && number("n_shared_experts") > 0)
      add_mlp(at + "shared_experts.", number("n_shared_experts") * mid);
    if (family_.model_type == "qwen2_moe") {
      add_mlp(at + "shared_expert.", number("shared_expert_intermediate_size"));
      add(at + "shared_expert_gate.weight", {1, hidden_});
    }
  }

  const Family& family_;
  const Json& config_;
  std::string prefix_, at_;
  const std::set<std::string>& names_;
  std::int64_t hidden_ = 0, heads_ = 0, layer_ = -1;
  std::int64_t there_ = 0;  // experts, in the layer that has most
  std::vector<ExpectedTensor> tensors_;
};

// Contradicting numbers of config.json, for any family.
std::vector<std::string> contradictions_in(const Json& text_config, const Family* family) {
  std::vector<std::string> out;
  const auto size = [&](std::string_view key) { return size_in(text_config, key); };
  const std::int64_t hidden = size("hidden_size"), heads = size("num_attention_heads"),
                     kv = size("num_key_value_heads");
  const bool has_head_dim = size("head_dim") > 0 || (family != nullptr && family->head_dim > 0);
  const bool latent = family != nullptr ? family->latent : text_config.has("kv_lora_rank");
  if (hidden > 0 && heads > 0 && !has_head_dim && !latent && hidden % heads != 0)
    out.push_back(text("num_attention_heads ", heads, " does not divide hidden_size ", hidden,
                       ", and there is no head_dim"));
  if (heads > 0 && kv > 0 && heads % kv != 0)
    out.push_back(text("num_key_value_heads ", kv, " does not divide num_attention_heads ", heads,
                       ", and each serves as many of them"));
  const std::int64_t experts = experts_in(text_config);
  for (const std::string_view key : {"num_experts_per_tok", "num_experts_per_token", "moe_top_k"})
    if (const std::int64_t chosen = size(key); experts > 0 && chosen > experts)
      out.push_back(text(key, " ", chosen, ", of ", counted(experts, "expert")));
  return out;
}

const Family* family_of(std::string_view model_type) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const Family& one) { return one.model_type == model_type; });
  return found == kFamilies.end() ? nullptr : &*found;
}

// The first entry of `architectures`, by which servers choose the modeling class.
std::string_view code_in(const Json& config) {
  const auto& architectures = config["architectures"].elements();
  return architectures.empty() ? std::string_view() : architectures.front().string_or("");
}

// Draft models for speculative decoding have the model_type of their target model and a part of its
// tensors.
bool is_draft(std::string_view code) {
  for (const std::string_view draft : {"Eagle", "Medusa", "MTP", "Draft"})
    if (code.find(draft) != std::string_view::npos) return true;
  return false;
}

// Does this class belong to that family: "LlamaForCausalLM", "LlamaModel"?
bool is_code_of(const Family& family, std::string_view code) {
  if (!code.starts_with(family.code)) return false;
  code.remove_prefix(family.code.size());
  return code.starts_with("For") || code.starts_with("Model");
}

}  // namespace

std::vector<std::string> contradictions_of(const Json& config) {
  const Json& inner = config["text_config"];
  const Json& text_config = inner["num_hidden_layers"].is_number() ? inner : config;
  const Family* const family = family_of(text_config["model_type"].string_or(""));
  std::vector<std::string> out;
  for (const std::string_view key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "vocab_size", "head_dim", "moe_intermediate_size",
        "n_routed_experts", "num_experts", "num_local_experts", "num_experts_per_tok"}) {
    const bool may_be_none = key.find("expert") != std::string_view::npos;
    const Json& value = text_config[key];
    if (value.is_null() || size_in(text_config, key) > 0) continue;
    if (may_be_none && value.integer_or(-1) == 0) continue;  // a model without experts
    if (value.is_array() && family == nullptr) continue;     // one value per layer
    out.push_back(
        text(key, " ", shown(value.dump(0), 40), "; expected a number from 1 to ", kMaxSize));
  }
  for (std::string& one : contradictions_in(text_config, family)) out.push_back(std::move(one));
  const std::string_view type = config["model_type"].string_or("");
  const std::string_view code = code_in(config);
  if (family_of(type) == nullptr) return out;
  for (const Family& other : kFamilies)
    if (is_code_of(other, code) && other.model_type != type)
      out.push_back(text("model_type '", type, "', by which transformers chooses the code, and ",
                         "architectures '", shown(code, 80), "', by which servers do"));
  return out;
}

std::string_view declared_dtype(const Json& config) {
  for (const Json* const place : {&config, &config["text_config"]})
    for (const std::string_view key : {"dtype", "torch_dtype"})
      if (const std::string_view type = (*place)[key].string_or(""); !type.empty()) return type;
  return {};
}

std::string_view foreign_architecture(const Json& config) {
  const Family* const family = family_of(config["model_type"].string_or(""));
  const std::string_view code = code_in(config);
  // Custom modeling code (auto_map) may have any class name.
  if (family == nullptr || code.empty() || is_draft(code) || config.has("auto_map")) return {};
  const auto is_same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };  // case-insensitive
  const bool names_it = std::search(code.begin(), code.end(), family->code.begin(),
                                    family->code.end(), is_same) != code.end();
  const bool known = std::any_of(kFamilies.begin(), kFamilies.end(), [&](const Family& other) {
    return is_code_of(other, code);
  });  // reported already
  return names_it || known ? std::string_view() : code;
}

// The language model is the stack with attention in its layers that is no tower or encoder and has
// the most layers.
std::optional<std::string> model_prefix(const std::set<std::string>& names) {
  std::map<std::string_view, std::set<std::int64_t>> found;
  for (const std::string& name : names) {
    const std::size_t at = name.find(kLayers);
    if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) continue;
    const std::int64_t layer = layer_number(name, at + kLayers.size());
    const std::string_view prefix = std::string_view(name).substr(0, at);
    const auto has = [&](std::string_view word) {
      return prefix.find(word) != std::string_view::npos;
    };
    if (layer < 0 || has("vis") || has("audio") || has("encoder")) continue;
    if (name.find(".self_attn.", at) != std::string::npos) found[prefix].insert(layer);
  }
  const auto most = std::max_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  return most == found.end() ? std::nullopt : std::optional(std::string(most->first));
}

std::int64_t Architecture::layer_of(std::string_view name) const {
  const std::string at = prefix + std::string(kLayers);
  return name.starts_with(at) ? layer_number(name, at.size()) : -1;
}

bool Architecture::is_beyond(std::string_view name) const {
  return (layers > 0 && layer_of(name) >= layers) ||
         (experts > 0 && number_behind(name, kExperts) >= experts);
}

std::optional<Architecture> expected_tensors(const Json& config,
                                             const std::set<std::string>& names) {
  const Json& inner = config["text_config"];
  const bool is_part = inner["num_hidden_layers"].is_number();
  const Json& text_config = is_part ? inner : config;
  const std::string_view type = text_config["model_type"].string_or(""), code = code_in(config);
  const Family* const family = family_of(type);
  if (family == nullptr || is_draft(code)) return std::nullopt;
  Architecture out{.model_type = std::string(type),
                   .layers = text_config["num_hidden_layers"].integer_or(0),
                   .experts = experts_in(text_config)};
  const auto has_layers = [&](const std::string& prefix) {
    out.prefix = prefix;
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return out.layer_of(name) >= 0; });
  };
  // The prefix of a part of a larger model is where its layers are. A language model by itself has
  // "model.", or no prefix where it was saved without a head; no loader looks elsewhere.
  if (is_part) {
    out.prefix = model_prefix(names).value_or("model.language_model.");
  } else if (has_layers("model.") || !has_layers("")) {
    out.prefix = "model.";
  }
  // A causal LM has a head, unless it is tied.
  out.generates = code.ends_with("ForCausalLM") && !is_part;
  std::set<std::int64_t> layers;
  for (const std::string& name : names) {
    const std::int64_t layer = out.layer_of(name);
    if (layer >= 0 && (out.layers <= 0 || layer < out.layers)) layers.insert(layer);
  }
  Building building(*family, text_config, out.prefix, layers, names);
  if (out.generates && !config["tie_word_embeddings"].boolean_or(false)) building.add_head();
  out.tensors = building.take();
  return out;
}

}  // namespace octavo
