#include "octavo/checkpoint/gguf/gguf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf/gguf_names.h"

namespace octavo::gguf {
namespace {

const TensorInfo* find_tensor(const Header& header, std::string_view name) {
  const auto at = std::find_if(header.tensors.begin(), header.tensors.end(),
                               [&](const TensorInfo& tensor) { return tensor.name == name; });
  return at == header.tensors.end() ? nullptr : &*at;
}

std::int64_t required(const Header& header, std::string_view key) {
  const auto value = model_integer(header, key);
  check(value.has_value() && *value > 0, ErrorCode::invalid_argument, kOp, "the metadata have no ",
        architecture_of(header), ".", key, "; expected a positive number; get a whole model");
  return *value;
}

// Llama 3's stretching of low frequencies. The file has its result alone: a factor for each
// frequency. The parameters are searched for among those that models have.
Json llama3_scaling(const std::vector<float>& factors, double theta) {
  if (factors.empty()) return {};
  const double factor = static_cast<double>(factors.back());
  constexpr double kLow = 1, kHigh = 4, kOldContext = 8192;
  // Factors were computed in f32 by chains of about ten operations; parameters that are not these
  // differ by per cents.
  constexpr double kTolerance = 1e-3;
  const auto count = static_cast<double>(factors.size());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / count);
    const double smooth = (kOldContext / wave - kLow) / (kHigh - kLow);
    const double wanted = wave < kOldContext / kHigh  ? 1
                          : wave > kOldContext / kLow ? factor
                                                      : 1 / ((1 - smooth) / factor + smooth);
    if (!(std::fabs(static_cast<double>(factors[i]) - wanted) <= kTolerance * wanted)) return {};
  }
  return Json::object({{"factor", shortest(factor)},
                       {"high_freq_factor", kHigh},
                       {"low_freq_factor", kLow},
                       {"original_max_position_embeddings", static_cast<std::int64_t>(kOldContext)},
                       {"rope_type", "llama3"}});
}

Json rope_scaling(const Header& header, double theta, const std::vector<float>& factors,
                  std::vector<std::string>& notes) {
  if (!factors.empty()) {
    Json found = llama3_scaling(factors, theta);
    if (found.is_null())
      notes.push_back(text(kRopeFactors,
                           " holds factors that config.json has no words for: long contexts will "
                           "not be as in the GGUF file"));
    return found;
  }
  const Value* const type = find_value(header, text(architecture_of(header), ".rope.scaling.type"));
  const std::string_view name = type == nullptr ? "" : type->string().value_or("");
  const auto factor = model_number(header, "rope.scaling.factor");
  if ((name != "linear" && name != "yarn") || !factor) return {};
  Json out = Json::object({{"rope_type", name}, {"factor", shortest(*factor)}});
  if (const auto before = model_integer(header, "rope.scaling.original_context_length"))
    out.set("original_max_position_embeddings", *before);
  return out;
}

// What tensors that are not quantized are written as: as the embedding is, where it is not.
std::string_view dtype_name(const TensorInfo* embedding) {
  const std::string_view type = embedding == nullptr ? std::string_view() : embedding->type->name;
  return type == "F16" ? "float16" : type == "F32" ? "float32" : "bfloat16";
}

}  // namespace

double shortest(double number) {
  std::array<char, 32> digits{};
  const auto [end, error] =
      std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<float>(number));
  double out = number;
  std::from_chars(digits.data(), end, out);
  return out;
}

Json make_config(const Header& header, const std::vector<float>& factors,
                 std::vector<std::string>& notes) {
  const Family family = family_of(header);
  if (!family.known()) return {};
  const std::int64_t hidden = required(header, "embedding_length");
  const double theta = shortest(model_number(header, "rope.freq_base").value_or(10000));
  const TensorInfo* const embedding = find_tensor(header, "token_embd.weight");
  const auto has = [&](std::string_view name) { return find_tensor(header, name) != nullptr; };
  Json config = Json::object(
      {{"architectures", Json::array({family.architecture->class_name})},
       {"model_type", family.architecture->name},
       {"hidden_size", hidden},
       {"intermediate_size", required(header, "feed_forward_length")},
       {"num_hidden_layers", required(header, "block_count")},
       {"num_attention_heads", family.heads},
       {"num_key_value_heads", family.kv_heads},
       {"head_dim", model_integer(header, "attention.key_length").value_or(hidden / family.heads)},
       {"max_position_embeddings", required(header, "context_length")},
       {"hidden_act", "silu"},
       {"rms_norm_eps",
        shortest(model_number(header, "attention.layer_norm_rms_epsilon").value_or(1e-6))},
       {"rope_theta", theta}});
  if (Json scaling = rope_scaling(header, theta, factors, notes); !scaling.is_null())
    config.set("rope_scaling", std::move(scaling));
  if (embedding != nullptr && !embedding->shape.empty())
    config.set("vocab_size", static_cast<std::int64_t>(embedding->shape.front()));
  config.set("tie_word_embeddings", !has("output.weight"));
  if (family.architecture->name != "qwen2") config.set("attention_bias", has("blk.0.attn_q.bias"));
  if (family.architecture->name == "llama") config.set("mlp_bias", has("blk.0.ffn_gate.bias"));
  for (const std::string_view token : {"bos", "eos"})
    if (const Value* const id = find_value(header, text("tokenizer.ggml.", token, "_token_id"));
        id != nullptr && id->integer())
      config.set(text(token, "_token_id"), *id->integer());
  config.set("dtype", dtype_name(embedding));
  return config;
}

}  // namespace octavo::gguf
