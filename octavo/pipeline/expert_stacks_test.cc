// Expert stacks through every dialect: unquantized and on the ignore list, split where loaders need
// per-expert matrices, and with the same values on every path.
#include <gtest/gtest.h>

#include <algorithm>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/verify/verify.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/pipeline_testing_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::int64_t kExperts = 2, kIn = 256, kMid = 128;

class ExpertStacksTest : public PipelineTest {
 protected:
  // One layer with an expert stack [experts, out, in] beside ordinary matrices.
  void write_experts() const {
    std::filesystem::create_directory(root / "model");
    save("model/config.json", R"({"architectures": ["A"], "model_type": "a"})");
    write_tensors(path("model/model.safetensors"),
                  {random_tensor(kUp, {kExperts, 2 * kMid, kIn}, 1),
                   random_tensor(kDown, {kExperts, kIn, kMid}, 2),
                   random_tensor("model.layers.0.self_attn.o_proj.weight", {kIn, kIn}, 3),
                   random_tensor("model.layers.0.mlp.gate.weight", {kExperts, kIn}, 4)});
  }
  // All weights of a checkpoint as values by name, with stacks merged.
  [[nodiscard]] std::map<std::string, std::string> numbers(const std::string& name) const {
    const std::string plain = name + "-plain";
    std::filesystem::remove_all(path(plain));
    const ConvertCheckpointResult result =
        dequantize_checkpoint(path(name), path(plain), DType::f32);
    EXPECT_TRUE(result.notes.empty());
    std::map<std::string, std::string> out;
    const CheckpointReader reader(path(plain));
    for (const StoredTensor& tensor : reader.tensors()) {
      std::string bytes(tensor.nbytes(), '\0');
      reader.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
      out[tensor.name()] = std::move(bytes);
    }
    return out;
  }
  // By default for the loaders that support all recipes and targets of this test.
  [[nodiscard]] std::vector<std::string> errors_of(
      const std::string& name,
      const VerifyOptions& options = {.loaders = {Loader::vllm, Loader::trtllm}}) const {
    std::vector<std::string> out;
    for (const Finding& finding : verify(CheckpointReader(path(name)), options))
      if (finding.severity == Severity::error)
        out.push_back(text(finding.rule, " ", finding.loader, " ", finding.tensor));
    return out;
  }
  [[nodiscard]] bool lists(const Json& list, const std::string& wanted) const {
    return std::any_of(list.elements().begin(), list.elements().end(),
                       [&](const Json& one) { return one.string_or("") == wanted; });
  }

  static constexpr const char* kUp = "model.layers.0.mlp.experts.gate_up_proj";
  static constexpr const char* kDown = "model.layers.0.mlp.experts.down_proj";
  static constexpr const char* kHolder = "model.layers.0.mlp.experts";
};

TEST_F(ExpertStacksTest, UnquantizedStacksAreOnTheIgnoreList) {
  write_experts();
  for (const Dialect target : {Dialect::compressed_tensors, Dialect::deepseek, Dialect::modelopt}) {
    SCOPED_TRACE(name_of(target));
    std::filesystem::remove_all(path("out"));
    QuantizeCheckpointOptions options = recipe("fp8-block", target);
    options.plan.exclude = {"experts"};
    (void)run("out", options);
    const Json words = CheckpointReader(path("out")).config()["quantization_config"];
    const Json& list = words[target == Dialect::deepseek ? "modules_to_not_convert" : "ignore"];
    for (const char* const name : {kUp, kDown, kHolder}) EXPECT_TRUE(lists(list, name)) << name;
    // vLLM matches experts by the names of split matrices.
    EXPECT_EQ(lists(list, R"(re:model\.layers\.0\.mlp\.experts\..*)"),
              target == Dialect::compressed_tensors);
    EXPECT_EQ(errors_of("out"), std::vector<std::string>());
    // A conversion keeps it.
    std::filesystem::remove_all(path("again"));
    (void)convert_checkpoint(path("out"), path("again"), target);
    EXPECT_EQ(CheckpointReader(path("again")).config()["quantization_config"], words);
  }
}

TEST_F(ExpertStacksTest, VerifyMissesThemOnTheList) {
  write_experts();
  QuantizeCheckpointOptions options = recipe("fp8-channel");
  options.plan.exclude = {"experts"};
  (void)run("out", options);
  Json config = CheckpointReader(path("out")).config();
  Json words = config["quantization_config"];
  words.set("ignore", Json::array({"lm_head", "model.layers.0.mlp.gate"}));
  config.set("quantization_config", words);
  save("out/config.json", config.dump());
  const std::vector<std::string> errors = errors_of("out", {});
  EXPECT_EQ(errors.size(), 4U);  // for each loader
  for (const std::string& error : errors)
    EXPECT_TRUE(has(error, "ignore-list") && has(error, kHolder)) << error;
}

TEST_F(ExpertStacksTest, ModeloptHasThemAsMatrices) {
  write_experts();
  for (const char* const name : {"fp8-block", "mxfp8", "nvfp4"}) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(path("mo"));
    std::filesystem::remove_all(path("ct"));
    (void)run("mo", recipe(name, Dialect::modelopt));
    (void)run("ct", recipe(name));
    const CheckpointReader reader(path("mo"));
    EXPECT_EQ(reader.find(kUp), nullptr);
    EXPECT_NE(reader.find(text(kHolder, ".1.up_proj.weight_scale")), nullptr);
    EXPECT_EQ(errors_of("mo"), std::vector<std::string>());
    EXPECT_EQ(numbers("mo"), numbers("ct"));
    EXPECT_EQ(numbers("mo").count(kUp), 1U);
  }
}

TEST_F(ExpertStacksTest, ConversionsTakeStacksApartWithoutLoss) {
  write_experts();
  for (const Dialect from : {Dialect::octavo, Dialect::deepseek})
    for (const char* const name : {"fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"})
      for (const Dialect to : {Dialect::compressed_tensors, Dialect::modelopt}) {
        const std::string_view preset_name = name;
        const bool blocks = preset_name == "fp8-block" || preset_name == "mxfp8";
        if (from == Dialect::deepseek && !blocks) continue;
        if (to == Dialect::modelopt && preset_name == "mxfp4") continue;  // unsupported there
        SCOPED_TRACE(text(name, ": ", name_of(from), " to ", name_of(to)));
        for (const char* const folder : {"from", "to", "back"})
          std::filesystem::remove_all(path(folder));
        (void)run("from", recipe(name, from));
        ASSERT_NE(CheckpointReader(path("from")).find(kUp), nullptr);
        (void)convert_checkpoint(path("from"), path("to"), to, {.threads = 2});
        const CheckpointReader reader(path("to"));
        EXPECT_EQ(reader.find(kUp), nullptr);
        const Recognized found = recognize(reader);
        EXPECT_EQ(found.dialect, to);
        EXPECT_EQ(found.weights.size(), static_cast<std::size_t>(3 * kExperts + 1));
        const auto before = numbers("from");
        EXPECT_EQ(numbers("to"), before);
        (void)convert_checkpoint(path("to"), path("back"), from);
        EXPECT_EQ(numbers("back"), before);
      }
}

// A stack stored as [in, out] has its tiles along the wrong dimension.
TEST_F(ExpertStacksTest, WhatCannotBeSplitSaysWhy) {
  std::filesystem::create_directory(root / "codes");
  const auto codes = [](const char* name, std::vector<std::uint64_t> shape) {
    TestTensor out = random_tensor(name, std::move(shape), 1);
    out.plan.type = safetensors::StoredType::f8_e4m3;
    out.bytes.assign(out.bytes.size() / 2, std::byte{0x38});
    return out;
  };
  const auto scales = [](const char* name, std::vector<std::uint64_t> shape) {
    return random_tensor(name, std::move(shape), 2, safetensors::StoredType::f32);
  };
  save("codes/config.json",
       R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})");
  write_tensors(path("codes/model.safetensors"),
                {codes(kUp, {2, 128, 512}), codes(kDown, {2, 256, 128}),
                 scales("model.layers.0.mlp.experts.gate_up_proj_scale_inv", {2, 1, 4}),
                 scales("model.layers.0.mlp.experts.down_proj_scale_inv", {2, 2, 1})});
  const std::string refused = message_of(
      [&] { (void)convert_checkpoint(path("codes"), path("out"), Dialect::compressed_tensors); },
      ErrorCode::unsupported);
  EXPECT_TRUE(has(refused, "[in, out]") && has(refused, "experts")) << refused;
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

// Only octavo's dialect records the scale rule.
TEST_F(ExpertStacksTest, RulesSurviveADialectThatHasNoKeyForThem) {
  write_experts();
  (void)run("ct", recipe("mxfp4"));
  (void)convert_checkpoint(path("ct"), path("octavo"), Dialect::octavo);
  (void)convert_checkpoint(path("octavo"), path("ct2"), Dialect::compressed_tensors);
  (void)convert_checkpoint(path("ct2"), path("octavo2"), Dialect::octavo);
  for (const char* const name : {"octavo", "octavo2"}) {
    const Recognized found = recognize(CheckpointReader(path(name)));
    ASSERT_FALSE(found.weights.empty());
    for (const FoundWeight& weight : found.weights)
      EXPECT_EQ(weight.weight.scaling.scale.rule, ScaleRule::even) << name;
  }
  EXPECT_EQ(contents_of(path("octavo"))["model.safetensors"],
            contents_of(path("octavo2"))["model.safetensors"]);
  // Provenance of another scheme, or none, changes nothing.
  Json config = CheckpointReader(path("ct")).config();
  Json words = config["octavo"];
  words.set("scalings", Json::array({"format=e2m1fn tile=1x16 scale=e8m0 rule=floor", "x", 7}));
  config.set("octavo", words);
  save("ct/config.json", config.dump());
  (void)convert_checkpoint(path("ct"), path("octavo3"), Dialect::octavo);
  EXPECT_EQ(recognize(CheckpointReader(path("octavo3"))).weights[0].weight.scaling,
            preset("mxfp4"));
}

// A stack's activation scale goes to each of its experts: no loader loads a checkpoint whose config
// declares static scales and whose file lacks them.
TEST_F(ExpertStacksTest, StaticScalesGoToEveryExpert) {
  write_experts();
  for (const char* const name : {"fp8", "nvfp4"}) {
    SCOPED_TRACE(name);
    for (const char* const old : {"oc", "mo"}) std::filesystem::remove_all(path(old));
    (void)run("oc", recipe(name, Dialect::octavo));
    {
      const safetensors::FileReader file(path("oc/model.safetensors"));
      std::vector<TestTensor> tensors;
      for (const auto& entry : file.header().tensors) {
        TestTensor one{{entry.name, entry.type, entry.shape}, {}};
        one.bytes.resize(entry.end - entry.begin);
        file.read(entry, 0, one.bytes);
        tensors.push_back(std::move(one));
      }
      const auto add = [&](const std::string& module, float value) {
        TestTensor one{{module + ".input_scale", safetensors::StoredType::f32, {}}, {}};
        one.bytes.resize(sizeof value);
        std::memcpy(one.bytes.data(), &value, sizeof value);
        tensors.push_back(std::move(one));
      };
      add(kUp, 0.25F);
      add(kDown, 0.5F);
      add("model.layers.0.self_attn.o_proj", 0.125F);
      std::vector<safetensors::TensorPlan> plans;
      for (const TestTensor& tensor : tensors) plans.push_back(tensor.plan);
      safetensors::FileWriter writer(path("more.safetensors"), plans,
                                     {.metadata = file.header().metadata});
      for (const TestTensor& tensor : tensors)
        writer.write(writer.at(tensor.plan.name), 0, tensor.bytes);
      writer.finish();
    }
    std::filesystem::rename(path("more.safetensors"), path("oc/model.safetensors"));
    const ConvertCheckpointResult result =
        convert_checkpoint(path("oc"), path("mo"), Dialect::modelopt);
    EXPECT_TRUE(result.notes.empty()) << result.notes.front();
    const CheckpointReader mo(path("mo"));
    EXPECT_EQ(mo.find(text(kUp, ".input_scale")), nullptr);
    for (std::int64_t expert = 0; expert < kExperts; ++expert)
      for (const auto& [matrix, wanted] : std::map<std::string, float>{
               {"gate_proj", 0.25F}, {"up_proj", 0.25F}, {"down_proj", 0.5F}}) {
        const std::string scale = text(kHolder, ".", expert, ".", matrix, ".input_scale");
        const StoredTensor* const stored = mo.find(scale);
        ASSERT_NE(stored, nullptr) << scale;
        float value = 0;
        mo.read(*stored, 0, std::as_writable_bytes(std::span(&value, 1)));
        EXPECT_EQ(value, wanted) << scale;
      }
    EXPECT_EQ(errors_of("mo"), std::vector<std::string>());
    EXPECT_TRUE(convert_checkpoint(path("oc"), path("mo"), Dialect::modelopt, {.resume = true})
                    .was_complete);
  }
}

}  // namespace
}  // namespace octavo
