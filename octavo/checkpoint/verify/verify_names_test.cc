// Names that no loader looks for: of layers, and of tensors that the model type does not have.
#include "octavo/checkpoint/verify/architecture_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;

// "rule:loader" of the errors alone.
std::string errors(const Model& model) {
  std::set<std::string> out;
  for (const Finding& one : findings_of(model))
    if (one.severity == Severity::error) out.insert(one.rule + ":" + one.loader);
  return joined(out);
}

Model renamed(const Model& model, std::string_view from, std::string_view to) {
  Model out = model;
  out.tensors.clear();
  for (const auto& [name, tensor] : model.tensors) {
    std::string other = name;
    if (const std::size_t at = other.find(from); at != std::string::npos)
      other.replace(at, from.size(), to);
    out.tensors[other] = tensor;
  }
  return out;
}

TEST(VerifyArchitecture, LayersThatNoLoaderFinds) {
  for (const auto& [name, kind] : kinds_of_models()) {
    const Model whole = written(kind);
    Model none = whole;
    std::erase_if(none.tensors,
                  [](const auto& one) { return one.first.find("layers.") != std::string::npos; });
    constexpr std::string_view kLayers =
        "layers:sglang layers:transformers layers:trtllm layers:vllm";
    EXPECT_EQ(verdict(none), kLayers) << name;
    none.config.remove("num_hidden_layers");
    EXPECT_EQ(verdict(none), kLayers) << name;
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"model.", "foo."},
             {"model.", "foo.bar.model."},
             {"layers.", "blocks."},
             {"layers.0.", "layers.00."},
             {"self_attn.", "self_attm."},
             {"model.layers.", "model.model.layers."}}) {
      const std::string found = errors(renamed(whole, from, to));
      for (const char* const loader : {"sglang", "transformers", "trtllm", "vllm"})
        EXPECT_TRUE(found.find(std::string("layers:") + loader) != std::string::npos ||
                    found.find(std::string("architecture:") + loader) != std::string::npos)
            << name << ": " << from << " as " << to << ": " << found;
    }
    // Saved without the prefix "model.": transformers adds it.
    EXPECT_EQ(errors(renamed(whole, "model.", "")),
              "architecture:sglang architecture:trtllm architecture:vllm")
        << name;
    Model bare = renamed(whole, "model.", "");
    bare.tensors.erase("lm_head.weight");
    Json code = bare.config["architectures"].elements().front();
    std::string_view text = code.string_or("");
    text.remove_suffix(std::string_view("ForCausalLM").size());
    bare.config.set("architectures", Json::array({std::string(text) + "Model"}));
    EXPECT_EQ(verdict(bare), "") << name;
  }
}

TEST(VerifyArchitecture, TensorsThatTheModelDoesNotHave) {
  const auto findings_for = [](const Kind& kind, const std::string& extra) {
    Model model = written(kind);
    model.tensors[extra] = {StoredType::bf16, {2, 2}, std::string(8, '\0')};
    std::string out;
    for (const Finding& one : findings_of(model)) {
      EXPECT_EQ(one.severity, Severity::warning) << one.message;
      EXPECT_EQ(one.tensor, extra);
      out += text(out.empty() ? "" : " ", one.rule, ":", one.loader);
    }
    return out;
  };
  constexpr std::string_view kFindings =
      "unknown-tensors:vllm unknown-tensors:transformers unknown-tensors:sglang "
      "unknown-tensors:trtllm";
  for (const auto& [name, kind] : kinds_of_models()) {
    for (const char* const extra :
         {"junk.weight", "model.layers.0.junk", "model.layers.1.self_attn.x_proj.weight",
          "model.layers.1.mlp.up_projx.bias", "x.layers.0.self_attn.q_proj.weight",
          "model.layers.00.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.junk_scale"})
      EXPECT_EQ(findings_for(kind, extra), kFindings) << name << extra;
    // Tensors of other rules, buffers that loaders recompute, and the head of a model with tied
    // embeddings.
    for (const char* const extra :
         {"model.layers.0.self_attn.k_scale", "model.layers.0.mlp.down_proj.input_scale",
          "model.layers.0.self_attn.rotary_emb.inv_freq"})
      EXPECT_EQ(findings_for(kind, extra), "") << name << extra;
  }
  const std::map<std::string, Kind> all = kinds_of_models();
  Model tied = written(all.at("llama"));
  tied.config.set("tie_word_embeddings", true);
  EXPECT_EQ(verdict(tied), "");
  // A tower beside a language model, another head, and multi-token-prediction layers.
  Kind inner = all.at("llama");
  inner.config = Json::object({{"model_type", "seer"},
                               {"architectures", Json::array({"SeerForConditionalGeneration"})},
                               {"text_config", inner.config}});
  EXPECT_EQ(findings_for(inner, "vision_tower.patch.weight"), "");
  Kind classifier = all.at("llama");
  classifier.of_model.erase("lm_head.weight");
  classifier.config.set("architectures", Json::array({"LlamaForSequenceClassification"}));
  EXPECT_EQ(findings_for(classifier, "score.weight"), "");
  Kind guessing = all.at("deepseek_v3");
  guessing.config.set("num_nextn_predict_layers", 1);
  EXPECT_EQ(findings_for(guessing, "model.layers.2.eh_proj.weight"), "");
}

}  // namespace
}  // namespace octavo
