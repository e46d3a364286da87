#include "octavo/model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/model/config_values_internal.h"
#include "octavo/model/rope_config_internal.h"

namespace octavo {
namespace {

constexpr std::int64_t kMostLayers = 1 << 16, kMostHeadSize = 1 << 16;

enum class Windows : std::uint8_t {
  none,
  all_layers,    // where there is a sliding_window
  where_used,    // all layers, with use_sliding_window
  late_layers,   // from max_window_layers on, with use_sliding_window
  early_layers,  // every second layer before max_window_layers, with use_sliding_window
  every_second,  // the first, third ...
  five_of_six,   // all but every sixth
};

enum class Experts : std::uint8_t { none, mixtral, qwen, gpt_oss };

// Differences between families, with the defaults that transformers has for what a config.json
// leaves out.
struct Family {
  std::string_view type;
  double theta = 1e4, epsilon = 1e-6;
  std::int64_t head_size = 0;  // 0: hidden_size / num_attention_heads
  Windows windows = Windows::none;
  std::int64_t window = 0;  // 0: none
  std::string_view activation = "silu";
  bool qk_norm = false, qkv_bias = false, attention_bias_key = false, mlp_bias_key = false;
  bool gemma = false, tied = false;
  Experts experts = Experts::none;
};
constexpr std::string_view kGelu = "gelu_pytorch_tanh";
constexpr std::array<Family, 11> kFamilies{{
    {.type = "llama", .attention_bias_key = true, .mlp_bias_key = true},
    {.type = "mistral", .windows = Windows::all_layers, .window = 4096},
    {.type = "qwen2", .windows = Windows::late_layers, .window = 4096, .qkv_bias = true},
    {.type = "qwen3",
     .head_size = 128,
     .windows = Windows::late_layers,
     .window = 4096,
     .qk_norm = true,
     .attention_bias_key = true},
    {.type = "qwen2_moe",
     .windows = Windows::early_layers,
     .window = 4096,
     .qkv_bias = true,
     .experts = Experts::qwen},
    {.type = "qwen3_moe",
     .windows = Windows::where_used,
     .window = 4096,
     .qk_norm = true,
     .attention_bias_key = true,
     .experts = Experts::qwen},
    {.type = "mixtral",
     .theta = 1e6,
     .epsilon = 1e-5,
     .windows = Windows::all_layers,
     .experts = Experts::mixtral},
    {.type = "gemma2",
     .head_size = 256,
     .windows = Windows::every_second,
     .window = 4096,
     .activation = kGelu,
     .attention_bias_key = true,
     .gemma = true,
     .tied = true},
    {.type = "gemma3_text",
     .theta = 1e6,
     .head_size = 256,
     .windows = Windows::five_of_six,
     .window = 4096,
     .activation = kGelu,
     .qk_norm = true,
     .attention_bias_key = true,
     .gemma = true,
     .tied = true},
    {.type = "phi3", .epsilon = 1e-5, .windows = Windows::all_layers},
    {.type = "gpt_oss",
     .theta = 150000.0,
     .epsilon = 1e-5,
     .head_size = 64,
     .windows = Windows::every_second,
     .window = 128,
     .attention_bias_key = true,
     .experts = Experts::gpt_oss},
}};

const Family& family_of(std::string_view type) {
  const auto found =
      std::ranges::find_if(kFamilies, [&](const Family& one) { return one.type == type; });
  if (found != kFamilies.end()) return *found;
  std::string names;
  for (const Family& one : kFamilies) names += text(names.empty() ? "" : ", ", one.type);
  fail(ErrorCode::unsupported, kConfigOp, "got a model of the type '", shown(type),
       "', which octavo cannot run; it runs ", names);
}

ActivationKind activation_of(std::string_view name) {
  if (name == "silu" || name == "swish") return ActivationKind::silu;
  if (name == "gelu") return ActivationKind::gelu;
  if (name == kGelu || name == "gelu_new") return ActivationKind::gelu_tanh;
  if (name == "relu") return ActivationKind::relu;
  fail(ErrorCode::unsupported, kConfigOp, "got the activation '", shown(name),
       "'; expected silu, gelu, gelu_pytorch_tanh or relu");
}

bool is_window_layer(Windows windows, std::int64_t layer, std::int64_t first) {
  switch (windows) {
    case Windows::none:
      return false;
    case Windows::late_layers:
      return layer >= first;
    case Windows::early_layers:
      return layer % 2 == 0 && layer < first;
    case Windows::every_second:
      return layer % 2 == 0;
    case Windows::five_of_six:
      return (layer + 1) % first != 0;
    default:
      return true;
  }
}

// Which layers have a window: as layer_types says, where it is given.
void set_windows(const ConfigValues& values, const Family& family, ModelConfig& out) {
  const bool asks = family.windows == Windows::where_used ||
                    family.windows == Windows::late_layers ||
                    family.windows == Windows::early_layers;
  // "sliding_window": null is none, which is not what no such key means.
  std::int64_t window =
      values.is_given("sliding_window") ? values.size_or_zero("sliding_window") : family.window;
  if (asks && !values.flag("use_sliding_window")) window = 0;
  const std::vector<Json>& types = values["layer_types"].elements();
  check(types.empty() || static_cast<std::int64_t>(types.size()) == out.layers,
        ErrorCode::invalid_argument, kConfigOp, "got ", types.size(), " layer_types and ",
        out.layers, " layers; expected one for each");
  const std::int64_t first =
      family.windows == Windows::five_of_six
          ? values.size("sliding_window_pattern", values.size("_sliding_window_pattern", 6))
          : values.size_or_zero("max_window_layers", 28);
  const bool by_type = family.windows != Windows::none && family.windows != Windows::where_used &&
                       family.windows != Windows::all_layers;
  for (std::int64_t layer = 0; layer < out.layers; ++layer) {
    bool windowed = is_window_layer(family.windows, layer, first);
    if (!types.empty()) {
      const std::string_view type = types[static_cast<std::size_t>(layer)].string_or("");
      check(type == "full_attention" || type == "sliding_attention", ErrorCode::unsupported,
            kConfigOp, "got the layer type '", shown(type),
            "'; expected full_attention or sliding_attention");
      if (by_type) windowed = type == "sliding_attention";
    }
    LayerAttention& attention = out.attention.emplace_back();
    if (windowed && window > 0) attention.window = window;
    // Gemma 3's layers with a window have frequencies of their own.
    if (windowed && out.ropes.size() > 1) attention.rope = 1;
  }
}

void set_ropes(const ConfigValues& values, const Family& family, ModelConfig& out) {
  RopeDefaults defaults{
      .theta = values.positive("rope_theta", family.theta),
      .partial = values.positive("partial_rotary_factor", 1.0),
      .head_size = out.head_size,
      .max_positions = out.max_positions,
      .original_max_positions = values.size_or_zero("original_max_position_embeddings"),
      .yarn_is_longrope = family.type == "phi3"};
  const Json& given = values["rope_parameters"];
  const bool by_layer =
      given["full_attention"].is_object() || given["sliding_attention"].is_object();
  const Json& all = by_layer          ? given["full_attention"]
                    : given.is_null() ? values["rope_scaling"]
                                      : given;
  Json usual;
  if (all.is_null() && family.experts == Experts::gpt_oss)
    usual = Json::object({{"rope_type", "yarn"},
                          {"factor", 32},
                          {"truncate", false},
                          {"original_max_position_embeddings", 4096}});
  out.ropes.push_back(parse_rope(all.is_null() ? usual : all, defaults));
  // Dynamic NTK is for contexts that are longer than those of the training.
  if (const auto& dynamic = out.ropes.front().dynamic)
    out.max_positions = std::max(
        out.max_positions, static_cast<std::int64_t>(std::min(
                               static_cast<double>(out.max_positions) * dynamic->factor, 0x1p24)));
  if (family.type == "gemma3_text") {
    defaults.theta = values.positive("rope_local_base_freq", 1e4);
    out.ropes.push_back(parse_rope(given["sliding_attention"], defaults));
  } else if (by_layer) {
    defaults.theta = values.positive("rope_theta", family.theta);
    out.ropes.push_back(parse_rope(given["sliding_attention"], defaults));
  }
}

void set_experts(const ConfigValues& values, const Family& family, ModelConfig& out) {
  out.sparse.assign(static_cast<std::size_t>(out.layers), family.experts != Experts::none);
  if (family.experts == Experts::none) return;
  ExpertsConfig& experts = out.experts;
  const bool qwen = family.experts == Experts::qwen, gpt_oss = family.experts == Experts::gpt_oss;
  // Files have either name.
  const std::int64_t named = values.size_or_zero("num_experts");
  experts.count = named > 0 ? named : values.size_or_zero("num_local_experts");
  check(qwen || experts.count > 0, ErrorCode::invalid_argument, kConfigOp,
        "there is no num_local_experts, which this model needs; get the model's own config.json");
  experts.top_k = values.size("num_experts_per_tok");
  experts.intermediate = qwen ? values.size("moe_intermediate_size") : out.intermediate;
  experts.normalized = qwen ? values.flag("norm_topk_prob") : true;
  if (family.type == "qwen2_moe") {
    experts.shared_intermediate = values.size("shared_expert_intermediate_size");
    experts.shared_gate = true;
  }
  if (gpt_oss) {
    experts.router = RouterKind::top_then_softmax;
    experts.router_bias = experts.biases = true;
    out.gate_limit = values.positive("swiglu_limit", 7.0);
    out.gate_alpha = 1.702;
    out.sinks = true;
  }
  // Qwen's configs may name no experts: its layers are dense then.
  if (experts.count == 0) experts = {};
  check(experts.top_k <= experts.count, ErrorCode::invalid_argument, kConfigOp,
        "got num_experts_per_tok ", experts.top_k, " of ", experts.count,
        " experts; expected no more than there are");
  if (!qwen) return;
  const std::int64_t step = values.size("decoder_sparse_step", 1);
  for (std::int64_t layer = 0; layer < out.layers; ++layer)
    out.sparse[static_cast<std::size_t>(layer)] = experts.count > 0 && (layer + 1) % step == 0;
  for (const Json& layer : values["mlp_only_layers"].elements()) {
    const std::int64_t at = layer.integer_or(-1);
    if (at >= 0 && at < out.layers) out.sparse[static_cast<std::size_t>(at)] = false;
  }
}

void set_tokens(const Json& config, ModelConfig& out) {
  const auto token = [&](const Json& id) -> std::optional<std::int32_t> {
    const std::int64_t number = id.integer_or(-1);
    if (number < 0 || number >= out.vocabulary) return std::nullopt;
    return static_cast<std::int32_t>(number);
  };
  const Json& eos = config["eos_token_id"];
  if (const auto one = token(eos)) out.eos.push_back(*one);
  for (const Json& element : eos.elements())
    if (const auto one = token(element)) out.eos.push_back(*one);
  out.bos = token(config["bos_token_id"]);
}

void set_attention(const ConfigValues& values, const Family& family, ModelConfig& out) {
  out.heads = values.size("num_attention_heads", family.gemma && family.qk_norm ? 8 : 0);
  out.kv_heads = values.size("num_key_value_heads", family.gemma && family.qk_norm ? 4 : out.heads);
  check(out.heads % out.kv_heads == 0, ErrorCode::invalid_argument, kConfigOp,
        "got num_attention_heads ", out.heads, " and num_key_value_heads ", out.kv_heads,
        "; expected each of the latter to serve as many of the former");
  const bool derived = !values.has("head_dim") && family.head_size == 0;
  check(!derived || out.hidden % out.heads == 0, ErrorCode::invalid_argument, kConfigOp,
        "got hidden_size ", out.hidden, " and num_attention_heads ", out.heads,
        ", which does not divide it, and no head_dim");
  out.head_size = derived ? out.hidden / out.heads : values.size("head_dim", family.head_size);
  // Before RoPE, which has a frequency for every pair of these.
  check(out.head_size <= kMostHeadSize, ErrorCode::invalid_argument, kConfigOp, "got heads of ",
        out.head_size, " elements (", derived ? "hidden_size / heads" : "head_dim",
        "); expected at most ", kMostHeadSize);
  check(out.heads * out.head_size <= std::numeric_limits<std::int32_t>::max(),
        ErrorCode::invalid_argument, kConfigOp, "got ", out.heads, " heads of ", out.head_size,
        " elements; expected fewer than 2^31 together");
  const bool all = family.attention_bias_key &&
                   values.flag("attention_bias", family.experts == Experts::gpt_oss);
  out.qkv_bias = all || (family.qkv_bias && values.flag("qkv_bias", true));
  out.output_bias = all;
  out.qk_norm = family.qk_norm;
  const double scalar = family.gemma ? values.positive("query_pre_attn_scalar", 256.0)
                                     : static_cast<double>(out.head_size);
  out.attention_scale = 1.0 / std::sqrt(scalar);
}

void set_gemma(const ConfigValues& values, const Family& family, ModelConfig& out) {
  if (!family.gemma) return;
  const auto cap = [&](std::string_view key, double usual) {
    if (!values.is_given(key) && !family.qk_norm) return usual;
    const std::optional<double> given = values.number(key);
    check(!given || *given > 0.0, ErrorCode::invalid_argument, kConfigOp, "got ", key, " ",
          given.value_or(0.0), "; expected a number above zero, or null");
    return given.value_or(0.0);
  };
  out.norm_zero_centred = true;
  out.norm_after = true;
  out.embedding_scale = std::sqrt(static_cast<double>(out.hidden));
  out.attention_cap = cap("attn_logit_softcapping", 50.0);
  out.logits_cap = cap("final_logit_softcapping", 30.0);
}

}  // namespace

ModelConfig parse_model_config(const Json& config) {
  check(config.is_object(), ErrorCode::invalid_argument, kConfigOp,
        "there is none, or it is no object; expected the config.json of a decoder beside its "
        "weights");
  const bool is_part = config["text_config"].is_object();
  const Json& json = is_part ? config["text_config"] : config;
  const ConfigValues values(json);
  std::string type(values.word("model_type", ""));
  const std::string_view outer = config["model_type"].string_or("");
  if (is_part && outer == "gemma3") type = "gemma3_text";
  if (type.empty()) type = outer;
  const Family& family = family_of(type);
  ModelConfig out{.family = type};
  out.vocabulary = values.size("vocab_size", type == "gemma3_text" ? 262208 : 0);
  out.hidden = values.size("hidden_size");
  out.layers = values.size("num_hidden_layers");
  check(out.layers <= kMostLayers, ErrorCode::invalid_argument, kConfigOp, "got num_hidden_layers ",
        out.layers, "; expected at most ", kMostLayers);
  out.intermediate = values.size("intermediate_size");
  out.max_positions = values.size("max_position_embeddings", family.gemma ? 131072 : 0);
  out.norm_epsilon = values.positive("rms_norm_eps", family.epsilon);
  // It is added to a mean square of about one.
  check(out.norm_epsilon <= 1.0, ErrorCode::invalid_argument, kConfigOp, "got rms_norm_eps ",
        out.norm_epsilon, "; expected a small number such as 1e-06, at most 1");
  out.activation = activation_of(values.word(values.has("hidden_activation") ? "hidden_activation"
                                             : family.gemma                  ? "-"
                                                                             : "hidden_act",
                                             family.activation));
  out.mlp_bias = family.mlp_bias_key && values.flag("mlp_bias");
  out.tied_head = ConfigValues(config).flag("tie_word_embeddings",
                                            values.flag("tie_word_embeddings", family.tied));
  set_attention(values, family, out);
  set_gemma(values, family, out);
  set_ropes(values, family, out);
  set_windows(values, family, out);
  set_experts(values, family, out);
  set_tokens(json, out);
  if (is_part && out.eos.empty()) set_tokens(config, out);
  return out;
}

ModelConfig parse_model_config(const std::string& text) {
  return parse_model_config(parse_json(text, "config.json"));
}

std::vector<std::string> model_families() {
  std::vector<std::string> out;
  for (const Family& one : kFamilies) out.emplace_back(one.type);
  return out;
}

}  // namespace octavo
