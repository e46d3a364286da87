#include "octavo/checkpoint/gguf/gguf_keys.h"

#include <cmath>
#include <numbers>

#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf/gguf_writer.h"

namespace octavo::gguf {
namespace {

std::int64_t required(const Json& config, std::string_view key) {
  const std::int64_t value = config[key].integer_or(0);
  check(value > 0 && value < 1LL << 31, ErrorCode::invalid_argument, kOp, "config.json says ", key,
        " ", value, "; expected a positive number; get the model's own config.json");
  return value;
}

std::int64_t head_size(const Json& config) {
  return config["head_dim"].integer_or(required(config, "hidden_size") /
                                       required(config, "num_attention_heads"));
}

// transformers has moved these into one object.
const Json& rope_of(const Json& config) {
  return config["rope_parameters"].is_object() ? config["rope_parameters"] : config["rope_scaling"];
}
double theta_of(const Json& config) {
  return config["rope_theta"].number_or(rope_of(config)["rope_theta"].number_or(10000));
}
std::string_view rope_type(const Json& config) {
  const Json& rope = rope_of(config);
  return rope["rope_type"].string_or(rope["type"].string_or("default"));
}

void add_rope_scaling(const Json& config, std::string_view prefix, Metadata& metadata) {
  const std::string_view type = rope_type(config);
  if (type == "default" || type == "llama3") return;
  check(type == "linear" || type == "yarn", ErrorCode::unsupported, kOp,
        "config.json says rope_type '", shown(type),
        "', which octavo does not write for llama.cpp; it knows default, linear, yarn and llama3");
  const Json& rope = rope_of(config);
  metadata[text(prefix, "rope.scaling.type")] = string_value(type);
  metadata[text(prefix, "rope.scaling.factor")] = f32_value(rope["factor"].number_or(1));
  if (const std::int64_t before = rope["original_max_position_embeddings"].integer_or(0);
      before > 0)
    metadata[text(prefix, "rope.scaling.original_context_length")] = count_value(before);
}

}  // namespace

const Architecture* architecture_of_config(const Json& config) {
  const std::string_view type = config["model_type"].string_or("");
  return find_architecture(type == "mistral" ? "llama" : type);
}

Metadata keys_of_config(const Json& config, std::string_view name) {
  const Architecture* const architecture = architecture_of_config(config);
  check(architecture != nullptr, ErrorCode::unsupported, kOp, "the model is a '",
        shown(config["model_type"].string_or("")), "'; expected one of ", known_architectures(),
        " for a GGUF file; choose another target");
  const std::string_view act = config["hidden_act"].string_or("silu");
  check(act == "silu", ErrorCode::unsupported, kOp, "config.json says hidden_act '", shown(act),
        "'; expected silu, which is all that llama.cpp has for this model");
  const std::string prefix = text(architecture->name, ".");
  Metadata out;
  out["general.architecture"] = string_value(architecture->name);
  out["general.name"] = string_value(name);
  out["general.quantization_version"] = count_value(2);
  const auto add = [&](std::string_view key, std::int64_t value) {
    out[text(prefix, key)] = count_value(value);
  };
  const std::int64_t heads = required(config, "num_attention_heads");
  add("block_count", required(config, "num_hidden_layers"));
  add("context_length", required(config, "max_position_embeddings"));
  add("embedding_length", required(config, "hidden_size"));
  add("feed_forward_length", required(config, "intermediate_size"));
  add("vocab_size", required(config, "vocab_size"));
  add("attention.head_count", heads);
  add("attention.head_count_kv", config["num_key_value_heads"].integer_or(heads));
  add("attention.key_length", head_size(config));
  add("attention.value_length", head_size(config));
  add("rope.dimension_count", head_size(config));
  out[text(prefix, "attention.layer_norm_rms_epsilon")] =
      f32_value(config["rms_norm_eps"].number_or(1e-6));
  out[text(prefix, "rope.freq_base")] = f32_value(theta_of(config));
  add_rope_scaling(config, prefix, out);
  return out;
}

std::vector<float> rope_factors(const Json& config) {
  if (rope_type(config) != "llama3") return {};
  const Json& rope = rope_of(config);
  const double factor = rope["factor"].number_or(8), low = rope["low_freq_factor"].number_or(1),
               high = rope["high_freq_factor"].number_or(4),
               before = rope["original_max_position_embeddings"].number_or(8192);
  const std::int64_t size = head_size(config);
  check(size > 0 && size <= 4096 && high > low && factor > 0 && low > 0 && before > 0,
        ErrorCode::invalid_argument, kOp,
        "the rope_scaling of config.json is no llama3; get the model's own config.json");
  std::vector<float> out;
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const double wave =
        2 * std::numbers::pi *
        std::pow(theta_of(config), 2 * static_cast<double>(i) / static_cast<double>(size));
    const double smooth = (before / wave - low) / (high - low);
    out.push_back(static_cast<float>(wave < before / high  ? 1
                                     : wave > before / low ? factor
                                                           : 1 / ((1 - smooth) / factor + smooth)));
  }
  return out;
}

}  // namespace octavo::gguf
