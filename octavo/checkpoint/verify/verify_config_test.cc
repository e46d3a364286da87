// config.json: contradictions within it, the number of layers, and quantized heads.
#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;

TEST(VerifyConfig, NumbersThatCannotStandBesideEachOther) {
  const Scaling channel = bf16_scaled("fp8-channel");
  const auto breaks = [&](const std::vector<Json::Member>& words) {
    expect_breaks(kCt, channel, "config", kAll, [&](Model& model) {
      for (const auto& [key, value] : words) model.config.set(key, value);
    });
  };
  breaks({{"hidden_size", 256}, {"num_attention_heads", 3}});
  breaks({{"num_attention_heads", 8}, {"num_key_value_heads", 3}});
  breaks({{"num_experts", 8}, {"num_experts_per_tok", 9}});
  breaks({{"n_routed_experts", 8}, {"num_experts_per_tok", 100}});
  breaks({{"hidden_size", std::int64_t{1} << 53}});
  breaks({{"hidden_size", Json("256")}});
  breaks({{"text_config", Json::object({{"num_hidden_layers", 1}, {"hidden_size", -1}})}});
  Model good = make_model(kCt, channel);
  for (const auto& [key, value] :
       std::vector<Json::Member>{{"hidden_size", 250},
                                 {"num_attention_heads", 16},
                                 {"head_dim", 128},
                                 {"num_key_value_heads", 4},
                                 {"num_experts", 8},
                                 {"num_experts_per_tok", 8},
                                 {"n_routed_experts", 0},
                                 {"intermediate_size", Json::array({4, 8})}})
    good.config.set(key, value);
  EXPECT_EQ(verdict(good), "");
}

TEST(VerifyConfig, TwoKindsOfModel) {
  const auto with = [](const char* type, const char* code) {
    Model model = make_model(kCt, bf16_scaled("fp8-channel"));
    model.config.set("model_type", type);
    model.config.set("architectures", Json::array({code}));
    for (const Finding& one : findings_of(model, {.loaders = {Loader::vllm}}))
      if (one.rule == "config") return true;
    return false;
  };
  EXPECT_TRUE(with("llama", "Qwen3ForCausalLM"));
  EXPECT_TRUE(with("qwen3", "Qwen3MoeForCausalLM"));
  EXPECT_TRUE(with("mistral", "LlamaForCausalLM"));
  EXPECT_TRUE(with("qwen3_moe", "BertModel"));
  EXPECT_TRUE(with("llama", "GPT2LMHeadModel"));
  EXPECT_FALSE(with("qwen3_moe", "Qwen3MoeForCausalLM"));
  EXPECT_FALSE(with("deepseek_v3", "DeepseekV3ForCausalLM"));
  EXPECT_FALSE(with("llama", "LlamaModel"));
  EXPECT_FALSE(with("llama", "LlamaForCausalLMEagle3"));
  EXPECT_FALSE(with("llama", "LLaMAForCausalLM"));  // the class's older name
  EXPECT_FALSE(with("llama", "Fairseq2LlamaForCausalLM"));
  EXPECT_FALSE(with("kimi_k2", "DeepseekV3ForCausalLM"));  // another family's class, by design
  EXPECT_FALSE(with("qwen2_vl", "Qwen2VLForConditionalGeneration"));
}

// transformers loads what it chooses by model_type; custom modeling code may have any class name.
TEST(VerifyConfig, CodeOfAnotherKind) {
  Model model = make_model(kCt, bf16_scaled("fp8-channel"));
  model.config.set("model_type", "llama");
  model.config.set("architectures", Json::array({"BertModel"}));
  const auto loaders = [&] {
    std::set<std::string> out;
    for (const Finding& one : findings_of(model))
      if (one.rule == "config") out.insert(one.loader);
    return joined(out);
  };
  EXPECT_EQ(loaders(), kServers);
  model.config.set("auto_map", Json::object());
  EXPECT_EQ(loaders(), "");
}

TEST(VerifyConfig, MoreLayersAndExpertsThanDeclared) {
  std::vector<Piece> pieces;
  for (int layer = 0; layer < 3; ++layer)
    for (const char* const part :
         {"self_attn.q_proj", "mlp.experts.0.up_proj", "mlp.experts.1.up_proj"})
      pieces.push_back({text("model.layers.", layer, ".", part), 128, 128});
  const auto with = [&](const std::vector<Json::Member>& words) {
    Model model = make_model(kDs, preset("fp8-block"), pieces);
    for (const auto& [key, value] : words) model.config.set(key, value);
    return verdict(model, {.loaders = {Loader::vllm}});
  };
  EXPECT_EQ(with({{"num_hidden_layers", 3}, {"num_experts", 2}}), "");
  EXPECT_EQ(with({{"num_hidden_layers", 2}}), "layers:vllm");
  EXPECT_EQ(with({{"num_hidden_layers", 4}}), "layers:vllm");
  // As in DeepSeek-V3: multi-token-prediction layers follow the others.
  EXPECT_EQ(with({{"num_hidden_layers", 2}, {"num_nextn_predict_layers", 1}}), "");
  EXPECT_EQ(with({{"num_hidden_layers", 1}, {"num_nextn_predict_layers", 1}}), "layers:vllm");
  EXPECT_EQ(with({{"num_experts", 1}}), "layers:vllm");
  EXPECT_EQ(with({{"num_experts", 3}}), "layers:vllm");
}

// Billions of layers and experts in a config take no memory: only existing layers are enumerated.
TEST(VerifyConfig, AbsurdNumbersCostNothing) {
  std::vector<Piece> pieces;
  for (int layer = 0; layer < 3; ++layer)
    for (const char* const part : {"self_attn.q_proj", "mlp.experts.0.up_proj"})
      pieces.push_back({text("model.layers.", layer, ".", part), 128, 128});
  Model model = make_model(kDs, preset("fp8-block"), pieces);
  for (const auto& [key, value] : std::vector<Json::Member>{{"model_type", "qwen3_moe"},
                                                            {"num_hidden_layers", 2'000'000'000},
                                                            {"num_experts", 2'000'000'000}})
    model.config.set(key, value);
  EXPECT_LT(findings_of(model).size(), 1000U);
}

// A model of another type than its config declares: every tensor is named, however many.
TEST(VerifyConfig, FindingsAreNotCutOff) {
  std::vector<Piece> pieces;
  for (int layer = 0; layer < 60; ++layer)
    pieces.push_back({text("model.layers.", layer, ".self_attn.q_proj"), 16, 16});
  Model model = make_model(kCt, bf16_scaled("fp8-channel"), pieces);
  model.config.set("model_type", "llama");
  std::int64_t missing = 0;
  for (const Finding& one : findings_of(model, {.loaders = {Loader::vllm}}))
    missing += one.rule == "architecture" ? 1 : 0;
  EXPECT_EQ(missing, 60 * 8);  // one of nine tensors is present
}

TEST(VerifyConfig, HeadsThatAreQuantized) {
  std::vector<Piece> pieces = kPieces;
  pieces.push_back({"lm_head", 256, 256});
  const auto model_of = [&](Dialect dialect, const Scaling& scaling) {
    Model model = make_model(dialect, scaling, pieces);
    // make_model has replaced the codes by an unquantized head
    const Model again = make_model(dialect, scaling, {{"x", 256, 256}});
    for (const auto& [name, tensor] : again.tensors)
      if (name.starts_with("x.")) model.tensors["lm_head" + name.substr(1)] = tensor;
    const auto drop = [](Json& words, std::string_view key) {
      Json list = Json::array();
      for (const Json& one : words[key].elements())
        if (one.string_or("") != "lm_head") list.push(one);
      words.set(key, std::move(list));
    };
    if (dialect == kDs) drop(model.words(), "modules_to_not_convert");
    if (dialect != kDs) drop(model.words(), "ignore");
    if (dialect == kMo) drop(const_cast<Json&>(model.hf_quant["quantization"]), "exclude_modules");
    return model;
  };
  const Scaling channel = bf16_scaled("fp8-channel");
  Model unnamed = model_of(kCt, channel);  // target Linear, which does not match a head
  unnamed.group().set("targets", Json::array({"Linear"}));
  EXPECT_EQ(verdict(unnamed), "special-modules:sglang special-modules:trtllm special-modules:vllm");
  Model named = model_of(kCt, channel);
  named.group().set("targets", Json::array({"Linear", "re:.*lm_head"}));
  const std::vector<Finding> found = findings_of(named);
  EXPECT_EQ(joined(kinds(found)), "special-modules:trtllm special-modules:vllm");
  for (const Finding& one : found)
    EXPECT_EQ(one.severity, one.loader == "trtllm" ? Severity::error : Severity::warning);
  Model blocks = model_of(kCt, bf16_scaled("fp8-block"));
  blocks.group().set("targets", Json::array({"Linear", "lm_head"}));
  EXPECT_EQ(verdict(blocks), "special-modules:sglang special-modules:trtllm special-modules:vllm");
  Model deepseek = model_of(kDs, preset("fp8-block"));
  EXPECT_EQ(verdict(deepseek),
            "special-modules:sglang special-modules:trtllm special-modules:vllm");
  deepseek.words().remove("modules_to_not_convert");
  EXPECT_TRUE(kinds(findings_of(deepseek)).contains("special-modules:transformers"));
  for (const Finding& one : findings_of(model_of(kMo, channel), {.loaders = {Loader::sglang}}))
    EXPECT_EQ(one.severity, Severity::warning) << one.rule << one.message;
}

}  // namespace
}  // namespace octavo
