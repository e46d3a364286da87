// Statistics of inputs in quantize_checkpoint: weighted errors, static scales, and what is refused.
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

// Of the model of write_model, made by hand.
class MadeStatistics : public InputStatistics {
 public:
  MadeStatistics() {
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = text("model.layers.", layer, ".");
      for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
        const std::int64_t width = name == std::string("mlp.down_proj") ? 1280 : 256;
        ranges[prefix + name] = {
            .width = width, .rows = 10, .amax = 4.0F + static_cast<float>(layer)};
      }
      cached.push_back({prefix + "self_attn", 8.0F, 2.0F});
    }
  }
  [[nodiscard]] const std::string& name() const override { return file; }
  [[nodiscard]] std::string identity() const override { return id; }
  [[nodiscard]] std::optional<InputRange> range_of(std::string_view module) const override {
    const auto at = ranges.find(module);
    return at == ranges.end() ? std::nullopt : std::optional(at->second);
  }
  [[nodiscard]] std::vector<float> mean_square(std::string_view module) const override {
    std::vector<float> out;
    for (std::int64_t i = 0; i < ranges.find(module)->second.width; ++i)
      out.push_back(first_square * std::exp2(static_cast<float>(i % 9)));
    return out;
  }
  [[nodiscard]] std::vector<CacheRange> caches() const override { return cached; }

  std::map<std::string, InputRange, std::less<>> ranges;
  std::vector<CacheRange> cached;
  float first_square = 1.0F;
  std::string id = "made", file = "made.safetensors";
};

class QuantizeStatistics : public PipelineTest {
 protected:
  void SetUp() override {
    PipelineTest::SetUp();
    write_model();
  }

  [[nodiscard]] QuantizeCheckpointOptions with(const std::string& name,
                                               Dialect target = Dialect::compressed_tensors) const {
    QuantizeCheckpointOptions options = recipe(name, target);
    options.plan.statistics = made;
    return options;
  }
  [[nodiscard]] float number(const std::string& folder, const std::string& name) const {
    const CheckpointReader reader(path(folder));
    float value = 0;
    reader.read(*reader.find(name), 0, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  [[nodiscard]] bool holds(const std::string& folder, const std::string& name) const {
    return CheckpointReader(path(folder)).find(name) != nullptr;
  }

  std::shared_ptr<MadeStatistics> made = std::make_shared<MadeStatistics>();
};

TEST_F(QuantizeStatistics, WeighErrors) {
  QuantizeCheckpointOptions options = with("nvfp4");
  options.plan.scale_policy = "wmse";
  (void)run("weighted", options);
  options.plan.scale_policy = "mse";
  (void)run("plain", options);
  const std::string name = "model.layers.0.mlp.up_proj.weight_scale";
  const auto bytes = [&](const std::string& folder, const std::string& tensor) {
    const CheckpointReader reader(path(folder));
    std::vector<std::byte> out(reader.find(tensor)->nbytes());
    reader.read(*reader.find(tensor), 0, out);
    return out;
  };
  EXPECT_NE(bytes("weighted", name), bytes("plain", name));
  // One tensor scale for what servers fuse, whatever weighs errors.
  for (const char* other : {"k_proj", "v_proj"})
    EXPECT_EQ(number("weighted", "model.layers.1.self_attn.q_proj.weight_global_scale"),
              number("weighted", text("model.layers.1.self_attn.", other, ".weight_global_scale")));
}

// E4M3 or E5M2 is chosen by plain errors, before weights are read.
TEST_F(QuantizeStatistics, WeighErrorsOfAFormatThatIsMeasured) {
  QuantizeCheckpointOptions options = with("fp8-channel", Dialect::octavo);
  options.plan.format = "auto";
  options.plan.scale_policy = "wmse";
  EXPECT_GT(run("measured", options).tensors.size(), 0U);
}

TEST_F(QuantizeStatistics, OfAnExpertWithoutTokensWeighNothing) {
  for (auto& [module, range] : made->ranges) range.rows = 0;
  QuantizeCheckpointOptions options = with("nvfp4");
  options.plan.scale_policy = "wmse";
  const CheckpointReport report = run("unseen", options);
  EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(), [](const std::string& note) {
    return note.find("no token reached 12 expert matrices") != std::string::npos;
  }));
}

TEST_F(QuantizeStatistics, GiveStaticInputScales) {
  QuantizeCheckpointOptions options = with("nvfp4", Dialect::modelopt);
  options.plan.input_scales = StaticScaleSource::statistics;
  (void)run("w4a4", options);
  EXPECT_EQ(number("w4a4", "model.layers.1.mlp.up_proj.input_scale"), 5.0F / 2688.0F);
  EXPECT_NE(CheckpointReader(path("w4a4")).config().dump(0).find("\"NVFP4\""), std::string::npos);
  options.plan.input_scales = StaticScaleSource::one;
  options.plan.statistics = nullptr;
  (void)run("one", options);
  EXPECT_EQ(number("one", "model.layers.1.mlp.up_proj.input_scale"), 1.0F);
  // A divisor in compressed-tensors.
  options = with("nvfp4");
  options.plan.input_scales = StaticScaleSource::statistics;
  (void)run("divisor", options);
  EXPECT_FLOAT_EQ(number("divisor", "model.layers.0.mlp.up_proj.input_global_scale"),
                  2688.0F / 4.0F);
  for (const auto& [name, largest] : {std::pair<const char*, float>{"fp8", 448.0F},
                                      {"fp8-channel", 448.0F},
                                      {"int8-channel", 127.0F}}) {
    options = with(name);
    options.plan.input_scales = StaticScaleSource::statistics;
    (void)run(name, options);
    EXPECT_EQ(number(name, "model.layers.0.mlp.up_proj.input_scale"), 4.0F / largest) << name;
    const CheckpointReader reader(path(name));
    const Json& inputs =
        reader.config()["quantization_config"]["config_groups"]["group_0"]["input_activations"];
    EXPECT_EQ(inputs["strategy"].string_or(""), "tensor") << name;
    EXPECT_FALSE(inputs["dynamic"].boolean_or(true)) << name;
  }
  (void)run("none", with("fp8"));
  EXPECT_FALSE(holds("none", "model.layers.0.mlp.up_proj.input_scale"));
}

TEST_F(QuantizeStatistics, GiveScalesOfTheCache) {
  QuantizeCheckpointOptions options = with("fp8-channel");
  options.plan.kv_scales = StaticScaleSource::statistics;
  (void)run("cache", options);
  EXPECT_EQ(number("cache", "model.layers.1.self_attn.k_scale"), 8.0F / 448.0F);
  EXPECT_EQ(number("cache", "model.layers.1.self_attn.v_scale"), 2.0F / 448.0F);
  EXPECT_TRUE(CheckpointReader(path("cache"))
                  .config()["quantization_config"]["kv_cache_scheme"]
                  .is_object());
  options.plan.statistics = nullptr;
  options.plan.kv_scales = StaticScaleSource::one;
  (void)run("one", options);
  EXPECT_EQ(number("one", "model.layers.0.self_attn.k_scale"), 1.0F);
  (void)run("none", recipe("fp8-channel"));
  EXPECT_FALSE(holds("none", "model.layers.1.self_attn.k_scale"));
}

TEST_F(QuantizeStatistics, AreRefusedWhereTheyDoNotFit) {
  const auto refused = [&](const QuantizeCheckpointOptions& options, const char* part,
                           ErrorCode code = ErrorCode::invalid_argument) {
    const std::string message = refusal("refused", code, options);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  QuantizeCheckpointOptions options = recipe("nvfp4");
  options.plan.scale_policy = "wmse";
  refused(options, "policy wmse needs statistics");
  options.plan.statistics = made;
  made->first_square = std::numeric_limits<float>::quiet_NaN();
  refused(options, "has an E[x^2] of nan");
  made->first_square = 1.0F;
  made->ranges["model.layers.0.mlp.up_proj"].width = 128;
  refused(options, "has 128 channels for 'model.layers.0.mlp.up_proj', and its weight has 256");
  made->ranges.erase("model.layers.0.mlp.up_proj");
  made->ranges.erase("model.layers.1.self_attn.q_proj");
  refused(options, "nothing about 'model.layers.0.mlp.up_proj', 'model.layers.1.self_attn.q_proj'");
  *made = MadeStatistics();
  options = with("fp8");
  options.plan.input_scales = StaticScaleSource::statistics;
  made->ranges["model.layers.0.mlp.up_proj"].amax = 0.0F;
  refused(options, "the largest input of 'model.layers.0.mlp.up_proj' is 0");
  made->ranges["model.layers.0.mlp.up_proj"].amax.reset();
  refused(options, "has no largest inputs");
  options = with("mxfp8");
  options.plan.input_scales = StaticScaleSource::one;
  refused(options, "has no static input scales for recipe mxfp8", ErrorCode::unsupported);
  options = with("fp8-channel");
  options.plan.kv_scales = StaticScaleSource::statistics;
  made->cached.pop_back();
  refused(options, "nothing about 'model.layers.1.self_attn'");
  made->cached.push_back({"model.layers.1.self_attn", HUGE_VALF, 1.0F});
  refused(options, "the largest key of 'model.layers.1.self_attn' is inf");
}

// The same command goes on; another file of statistics is another job.
TEST_F(QuantizeStatistics, ArePartOfWhatIsResumed) {
  QuantizeCheckpointOptions options = with("nvfp4");
  options.plan.scale_policy = "wmse";
  (void)run("resumed", options);
  options.resume = true;
  EXPECT_TRUE(run("resumed", options).was_complete);
  made->id = "made of another text";
  const std::string message = refusal("resumed", ErrorCode::io, options);
  EXPECT_NE(message.find("other options"), std::string::npos) << message;
}

// The same statistics in another place are the same; others in the same place are not.
TEST_F(QuantizeStatistics, CountByTheirContentWhereverTheyLie) {
  QuantizeCheckpointOptions options = with("nvfp4");
  options.plan.scale_policy = "wmse";
  (void)run("out", options);
  options.resume = true;
  made->file = "elsewhere/made.safetensors";
  EXPECT_TRUE(run("out", options).was_complete);
  made->id = "others";
  EXPECT_TRUE(has(refusal("out", ErrorCode::io, options), "other options"));
}

}  // namespace
}  // namespace octavo
