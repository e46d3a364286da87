// Inconsistent configs and scales, and damaged tensors.
#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;

// Faults that one tensor's header does not show: only several tensors together, or values.
TEST(Verify, LiesAndDamage) {
  const Scaling channel = bf16_scaled("fp8-channel"), block = preset("fp8-block");
  const std::string up = kUp + ".weight_scale_inv";  // of 512 x 256: a grid of [4, 2]
  // A transposed grid has as many scales.
  expect_breaks(kDs, block, "parts", "all", [&](Model& model) {
    model.tensors.at(up).shape = {2, 4};
  });
  expect_breaks(kCt, block, "parts", "all", [&](Model& model) {
    model.tensors.at(kUp + ".weight_scale").shape = {2, 4};
  });
  expect_breaks(kDs, block, "scale-shapes", kAll, [&](Model& model) {
    model.tensors.at(up).shape = {4, 1, 2, 1};
  });
  expect_breaks(kCt, preset("nvfp4"), "scale-shapes", kAll, [](Model& model) {
    model.tensors.at(kQ + ".weight_global_scale").shape = {1, 1};
  });
  for (const Json& size : {Json::array({64, 64}), Json::array({128}), Json()})
    expect_breaks(kDs, block, "declared-scheme", kAll,
                  [&](Model& model) { model.words().set("weight_block_size", size); });
  expect_breaks(kCt, block, "declared-scheme", kAll, [](Model& model) {
    const_cast<Json&>(model.group()["weights"]).set("block_structure", Json::array({64, 64}));
  });
  expect_breaks(kCt, channel, "declared-scheme", kAll, [](Model& model) {
    model.group().set("targets", Json::array({"re:.*self_attn"}));
  });
  expect_breaks(kMo, channel, "declared-scheme", kServers, [](Model& model) {
    model.words().set("quant_algo", "FP8");
    const_cast<Json&>(model.hf_quant["quantization"]).set("quant_algo", "FP8");
  });
  expect_breaks(kDs, block, "activation-scales", kAll,
                [](Model& model) { model.words().set("activation_scheme", "static"); });
  expect_breaks(kDs, block, "activation-scales", "sglang vllm",
                [](Model& model) { model.words().set("activation_scheme", "dynamc"); });
  // Inverted scales: of one weight, and of all.
  const auto invert = [](Stored& tensor) {
    for (std::size_t i = 0; i + 4 <= tensor.bytes.size(); i += 4) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + i, 4);
      value = 1 / value;
      std::memcpy(tensor.bytes.data() + i, &value, 4);
    }
  };
  expect_breaks(kDs, block, "plausible", kAll, [&](Model& model) { invert(model.tensors.at(up)); });
  expect_breaks(kDs, block, "plausible", kAll, [&](Model& model) {
    for (auto& [name, tensor] : model.tensors)
      if (name.ends_with("_scale_inv")) invert(tensor);
  });
  expect_breaks(kDs, block, "orphans", kAll, [&](Model& model) {
    model.tensors["model.layers.0.mlp.router.weight_scale_inv"] = model.tensors.at(up);
  });
  expect_breaks(kDs, block, "codes", kAll,
                [](Model& model) { model.tensors.at(kQ + ".weight").bytes[700] = '\x7F'; });
  expect_breaks(kDs, block, "codes", kAll,
                [](Model& model) { model.tensors.at(kQ + ".weight").bytes[65535] = '\xFF'; });
  for (const float bad :
       {-1e-3F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    expect_breaks(kDs, block, "scale-numbers", kAll, [&](Model& model) { put(model, up, 3, bad); });
  expect_breaks(kDs, block, "zero-scales", kAll, [&](Model& model) { put(model, up, 7, 0.0F); });
  expect_breaks(kDs, block, "layers", kAll,
                [](Model& model) { model.config.set("num_hidden_layers", 2); });
}

TEST(Verify, ZeroScalesOverZerosAreNothing) {
  Model model = make_model(kDs, preset("fp8-block"));
  const std::string up = kUp + ".weight";
  for (int row = 384; row < 512; ++row)
    for (int col = 128; col < 256; ++col)
      model.tensors.at(up).bytes[static_cast<std::size_t>(row * 256 + col)] = '\x80';
  put(model, up + "_scale_inv", 7, 0.0F);
  EXPECT_EQ(verdict(model), "");
  put(model, up + "_scale_inv", 6, 0.0F);
  EXPECT_EQ(verdict(model, {.loaders = {Loader::vllm}}), "zero-scales:vllm");
  EXPECT_EQ(findings_of(model, {.codes = false}).front().severity, Severity::warning);
}

TEST(Verify, ConfigKeysThatAreNotTrue) {
  const Scaling channel = bf16_scaled("fp8-channel"), block = preset("fp8-block");
  const auto weights = [](Model& model) -> Json& {
    return const_cast<Json&>(model.group()["weights"]);
  };
  const auto input = [](Model& model) -> Json& {
    return const_cast<Json&>(model.group()["input_activations"]);
  };
  const auto lies = [&](Dialect dialect, const Scaling& scaling,
                        const std::function<void(Model&)>& change) {
    expect_breaks(dialect, scaling, "declared-keys", kAll, change);
  };
  for (const char* const format : {"int-quantized", "nvfp4-pack-quantized", "", "mixed-precision"})
    lies(kCt, channel, [&](Model& model) { model.words().set("format", format); });
  lies(kCt, channel, [](Model& model) { model.words().remove("format"); });
  lies(kCt, preset("nvfp4"),
       [](Model& model) { model.words().set("format", "mxfp4-pack-quantized"); });
  lies(kCt, channel, [](Model& model) { model.group().set("format", "int-quantized"); });
  expect_breaks(kCt, channel, "declared-keys", "transformers",
                [](Model& model) { model.words().set("quantization_status", "frozen"); });
  lies(kCt, channel, [&](Model& model) { weights(model).set("dynamic", true); });
  lies(kCt, channel, [&](Model& model) { weights(model).set("dynamic", "local"); });
  lies(kCt, channel, [&](Model& model) { weights(model).set("symmetric", false); });
  lies(kCt, channel, [&](Model& model) { input(model).set("num_bits", 4); });
  lies(kCt, channel, [&](Model& model) { input(model).set("type", "int"); });
  lies(kDs, block, [](Model& model) { model.words().set("fmt", "e5m2"); });
  lies(kDs, block, [](Model& model) { model.words().set("scale_fmt", "ue4m3"); });
  lies(kDs, block, [](Model& model) { model.words().set("bits", 4); });
  expect_breaks(kCt, channel, "declared-scheme", kAll,
                [&](Model& model) { weights(model).set("num_bits", 4); });
  // Valid keys that other tools write.
  Model good = make_model(kCt, channel);
  good.words().set("format", "naive-quantized");
  EXPECT_EQ(verdict(good), "");
  good.words().set("bits", 8);
  EXPECT_EQ(verdict(good), "");
}

}  // namespace
}  // namespace octavo
