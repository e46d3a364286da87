#include "octavo/model/model_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error_testing_internal.h"
#include "octavo/base/json/json.h"
#include "octavo/model/config_values_internal.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

Json llama() {
  return parse_json(R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    "eos_token_id": [2, 7], "bos_token_id": 1})",
                    "config.json");
}

Json with(std::string_view key, Json value) {
  Json json = llama();
  json.set(key, std::move(value));
  return json;
}

TEST(ModelConfig, NumbersOfALlama) {
  const ModelConfig config = parse_model_config(llama());
  EXPECT_EQ(config.head_size, 8);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_DOUBLE_EQ(config.attention_scale, 1.0 / std::sqrt(8.0));
  EXPECT_EQ(config.eos, (std::vector<std::int32_t>{2, 7}));
  EXPECT_EQ(config.bos, 1);
  ASSERT_EQ(config.ropes.size(), 1U);
  // 10000^(-2 i / 8)
  const std::vector<float> wanted{1.0F, 0.1F, 0.01F, 0.001F};
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(config.ropes[0].inverse_frequencies[i], wanted[i], 2 * 0x1p-24 * wanted[i]);
}

TEST(ModelConfig, WindowsByLayer) {
  Json qwen = with("model_type", "qwen2");
  qwen.set("use_sliding_window", true);
  qwen.set("sliding_window", 32);
  qwen.set("max_window_layers", 3);
  const ModelConfig late = parse_model_config(qwen);
  EXPECT_EQ(late.attention[2].window, -1);
  EXPECT_EQ(late.attention[3].window, 32);
  qwen.set("use_sliding_window", false);
  EXPECT_EQ(parse_model_config(qwen).attention[3].window, -1);
  Json mistral = with("model_type", "mistral");
  EXPECT_EQ(parse_model_config(mistral).attention[0].window, 4096);
  mistral.set("sliding_window", Json());
  EXPECT_EQ(parse_model_config(mistral).attention[0].window, -1);
  Json gemma = with("model_type", "gemma2");
  gemma.set("layer_types", Json::array({"full_attention", "sliding_attention", "full_attention",
                                        "full_attention"}));
  const ModelConfig typed = parse_model_config(gemma);
  EXPECT_EQ(typed.attention[0].window, -1);
  EXPECT_EQ(typed.attention[1].window, 4096);
  EXPECT_EQ(typed.attention_cap, 50.0);
  EXPECT_TRUE(typed.norm_after);
}

TEST(ModelConfig, RopeScalings) {
  const auto scaled = [](const char* text) {
    return parse_model_config(with("rope_scaling", parse_json(text, "rope"))).ropes[0];
  };
  const RotaryEmbedding linear = scaled(R"({"type": "linear", "factor": 4})");
  EXPECT_EQ(linear.inverse_frequencies[0], 0.25F);
  const RotaryEmbedding dynamic = scaled(R"({"rope_type": "dynamic", "factor": 2})");
  EXPECT_EQ(dynamic.frequencies_for(2048), dynamic.inverse_frequencies);
  // base (2 * 4096 / 2048 - 1)^(8 / 6), to the power of -2 / 8
  EXPECT_NEAR(dynamic.frequencies_for(4096)[1], std::pow(1e4 * std::pow(3.0, 8.0 / 6.0), -0.25),
              1e-7);
  const RotaryEmbedding yarn =
      scaled(R"({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 256})");
  EXPECT_NEAR(yarn.attention_factor, 0.1 * std::log(8.0) + 1.0, 1e-12);
  const RotaryEmbedding longrope = scaled(
      R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2],
          "original_max_position_embeddings": 512})");
  EXPECT_EQ(longrope.frequencies_for(512)[0], 1.0F);
  EXPECT_EQ(longrope.frequencies_for(513)[0], 0.5F);
}

TEST(ModelConfig, WhatItDoesNotKnowIsNamed) {
  expect_refused(ErrorCode::unsupported, "a model of the type 'mamba'",
                 [] { (void)parse_model_config(with("model_type", "mamba")); });
  expect_refused(ErrorCode::unsupported, "the activation 'mish'",
                 [] { (void)parse_model_config(with("hidden_act", "mish")); });
  expect_refused(ErrorCode::unsupported, "the RoPE type 'spiral'", [] {
    (void)parse_model_config(with("rope_scaling", Json::object({{"rope_type", "spiral"}})));
  });
  Json gemma = with("model_type", "gemma2");
  gemma.set("layer_types", Json::array({"a", "a", "a", "chunked_attention"}));
  expect_refused(ErrorCode::unsupported, "the layer type 'a'",
                 [&] { (void)parse_model_config(gemma); });
}

TEST(ModelConfig, ContradictionsAreRefused) {
  const auto refused = [](std::string_view key, Json value, const std::string& words) {
    expect_refused(ErrorCode::invalid_argument, words,
                   [&] { (void)parse_model_config(with(key, std::move(value))); });
  };
  refused("num_key_value_heads", 3, "num_key_value_heads 3");
  refused("num_attention_heads", 6, "does not divide it");
  refused("hidden_size", std::int64_t{1} << 62, "hidden_size 4611686018427387904");
  refused("hidden_size", -1, "hidden_size -1");
  refused("num_hidden_layers", 1 << 30, "at most 65536");
  refused("vocab_size", Json(), "there is no vocab_size");
  refused("vocab_size", "many", "vocab_size \"many\"");
  refused("rms_norm_eps", 0, "rms_norm_eps 0");
  refused("rms_norm_eps", 1.5, "rms_norm_eps 1.5");
  refused("head_dim", 1 << 20, "heads of 1048576 elements");
  refused("rope_theta", -5, "rope_theta -5");
  refused("partial_rotary_factor", 0.4, "partial_rotary_factor");  // three elements
  refused("partial_rotary_factor", 1e300, "a partial_rotary_factor of 1e+300");
  refused("tie_word_embeddings", "yes", "true or false");
  expect_refused(ErrorCode::invalid_argument, "there is none",
                 [] { (void)parse_model_config(Json()); });
}

TEST(ModelConfig, RopeThatGivesNoNumbersIsRefused) {
  const auto refused = [](const char* rope, const std::string& words) {
    SCOPED_TRACE(rope);
    expect_refused(ErrorCode::invalid_argument, words, [&] {
      (void)parse_model_config(with("rope_scaling", parse_json(rope, "rope")));
    });
  };
  refused(R"({"rope_type": "linear", "factor": 1e-300})", "frequencies that are not finite");
  refused(R"({"rope_type": "llama3", "factor": 1e-60, "original_max_position_embeddings": 8})",
          "frequencies that are not finite");
  refused(R"({"rope_type": "yarn", "factor": 2, "attention_factor": 0,
              "original_max_position_embeddings": 256})",
          "an attention factor of 0");
  refused(R"({"rope_type": "yarn", "factor": 2, "attention_factor": -1,
              "original_max_position_embeddings": 256})",
          "an attention factor of -1");
  refused(R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "attention_factor": 1e60,
              "long_factor": [1e-300, 2, 2, 2], "original_max_position_embeddings": 512})",
          "frequencies that are not finite");
}

// A model of no experts has no layer that would look at the other numbers.
TEST(ModelConfig, ExpertsThatAreNotThereHaveNoSizes) {
  Json qwen = with("model_type", "qwen3_moe");
  qwen.set("num_experts", 0);
  qwen.set("num_experts_per_tok", 2147483647);
  qwen.set("moe_intermediate_size", 2147483647);
  const ModelConfig config = parse_model_config(qwen);
  EXPECT_EQ(config.experts.top_k, 0);
  EXPECT_EQ(config.experts.intermediate, 0);
  EXPECT_EQ(config.sparse, std::vector<bool>(4, false));
  qwen.set("num_experts", 8);
  expect_refused(ErrorCode::invalid_argument, "num_experts_per_tok 2147483647 of 8 experts",
                 [&] { (void)parse_model_config(qwen); });
}

}  // namespace
}  // namespace octavo
