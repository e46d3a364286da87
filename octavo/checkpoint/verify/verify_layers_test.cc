// Missing parts: tensors, layers, experts, config.json.
#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;

Model three_layers() {
  std::vector<Piece> pieces;
  for (int layer = 0; layer < 3; ++layer)
    for (const char* const part :
         {"self_attn.q_proj", "self_attn.o_proj", "mlp.experts.0.up_proj", "mlp.experts.1.up_proj"})
      pieces.push_back({text("model.layers.", layer, ".", part), 128, 128});
  return make_model(kDs, preset("fp8-block"), pieces);
}

TEST(Verify, LayersThatLackSomething) {
  Model whole = three_layers();
  EXPECT_EQ(verdict(whole), "");
  const auto drop = [](Model& model, const std::string& prefix) {
    std::erase_if(model.tensors, [&](const auto& one) { return one.first.starts_with(prefix); });
  };
  const auto missing = [&](const std::string& prefix) {
    Model model = three_layers();
    drop(model, prefix);
    std::string out;
    for (const Finding& one : findings_of(model, {.loaders = {Loader::vllm}}))
      out += text(out.empty() ? "" : " ", one.rule, ":", one.tensor);
    return out;
  };
  EXPECT_EQ(missing("model.layers.1.self_attn.q_proj"),
            "layers:model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(missing("model.layers.1."), "layers:model.layers.1");
  EXPECT_EQ(missing("model.layers.2.mlp.experts.0."), "layers:model.layers.2.mlp.experts.0");
  Model few = three_layers();
  few.config.set("n_routed_experts", 3);
  EXPECT_EQ(verdict(few, {.loaders = {Loader::vllm}}), "layers:vllm");
  // A dense first layer has no experts, and lacks none.
  EXPECT_EQ(missing("model.layers.0.mlp.experts."), "");
}

TEST(Verify, AFolderWithoutConfigOrWeightsDoesNotLoad) {
  Model model{.dialect = kCt, .config = Json()};
  model.tensors["q_proj.weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
  EXPECT_EQ(verdict(model), "config:sglang config:transformers config:trtllm config:vllm");
  model.config =
      Json::object({{"model_type", "test"}, {"architectures", Json::array({"TestModel"})}});
  model.tensors.clear();
  EXPECT_EQ(verdict(model), "weights:sglang weights:transformers weights:trtllm weights:vllm");
}

TEST(Verify, AConfigThatDoesNotSayWhichModelItIs) {
  const Scaling channel = bf16_scaled("fp8-channel");
  expect_breaks(kCt, channel, "config", kAll,
                [](Model& model) { model.config.remove("model_type"); });
  expect_breaks(kCt, channel, "config", kAll,
                [](Model& model) { model.config.set("model_type", 7); });
  expect_breaks(kCt, channel, "config", kServers,
                [](Model& model) { model.config.remove("architectures"); });
  expect_breaks(kCt, channel, "config", kServers,
                [](Model& model) { model.config.set("architectures", Json::array()); });
}

// Unknown model type: what one of two layers has, the other may lack.
TEST(Verify, OneOfTwoLayersThatLacksSomethingIsAWarning) {
  std::vector<Piece> pieces;
  for (const char* const layer : {"model.layers.0.", "model.layers.1."})
    for (const char* const part : {"self_attn.q_proj", "self_attn.o_proj"})
      pieces.push_back({std::string(layer) + part, 128, 128});
  Model model = make_model(kDs, preset("fp8-block"), pieces);
  EXPECT_EQ(verdict(model), "");
  std::erase_if(model.tensors, [](const auto& one) {
    return one.first.starts_with("model.layers.1.self_attn.q_proj");
  });
  const std::vector<Finding> found = findings_of(model, {.loaders = {Loader::vllm}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tensor, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(found[0].severity, Severity::warning);
}

TEST(Verify, ValuesThatAreNotFinite) {
  const Scaling channel = bf16_scaled("fp8-channel");
  for (const std::uint16_t bits : {0x7FC0, 0xFF80}) {  // NaN, -Inf
    expect_breaks(kCt, channel, "values", kAll,
                  [&](Model& model) { put(model, "model.norm.weight", 3, bits); });
    expect_breaks(kCt, channel, "values", kAll,
                  [&](Model& model) { put(model, "lm_head.weight", 7, bits); });
    // With codes = false too: norms are small enough to be read always.
    expect_breaks(kCt, channel, "values", kAll,
                  [&](Model& model) { put(model, "model.norm.weight", 0, bits); },
                  {.codes = false});
  }
}

}  // namespace
}  // namespace octavo
