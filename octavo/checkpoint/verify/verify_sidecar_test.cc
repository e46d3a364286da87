// Disagreement between redundant files: hf_quant_config.json and config.json, the index and the
// shards.
#include "octavo/checkpoint/shard_index.h"
#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;

Json& side(Model& model) { return const_cast<Json&>(model.hf_quant["quantization"]); }

TEST(Verify, ASidecarFileThatDeclaresSomethingElse) {
  const Scaling nvfp4 = preset("nvfp4"), channel = bf16_scaled("fp8-channel");
  const auto breaks = [&](const Scaling& scaling, const std::function<void(Model&)>& change) {
    expect_breaks(kMo, scaling, "sidecar-file", kServers, [&](Model& model) {
      change(model);
      add_cache_scales(model);
    });
  };
  breaks(nvfp4, [](Model& model) { side(model).set("kv_cache_quant_algo", "FP8"); });
  breaks(nvfp4, [](Model& model) {
    model.words().set("kv_cache_scheme",
                      Json::object({{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}));
  });
  breaks(nvfp4, [](Model& model) {
    side(model).set("kv_cache_quant_algo", "FP8");
    model.words().set("kv_cache_scheme", Json::object({{"num_bits", 4}, {"type", "float"}}));
  });
  // JSON types that a server's parser rejects.
  breaks(channel,
         [](Model& model) { side(model).set("kv_cache_quant_algo", Json::array({"FP8"})); });
  breaks(channel, [](Model& model) { side(model).set("exclude_modules", "lm_head"); });
  breaks(channel, [](Model& model) { side(model).set("group_size", "many"); });
  breaks(channel, [](Model& model) { side(model).set("group_size", -16); });
  // A quantized module on one of the ignore lists, and an unquantized one on neither.
  breaks(channel, [](Model& model) { const_cast<Json&>(side(model)["exclude_modules"]).push(kQ); });
  breaks(channel,
         [](Model& model) { side(model).set("exclude_modules", Json::array({"lm_head"})); });
  // Each file against the other, and one of them against the weights.
  const auto both = [](Model& model) {
    std::string out;
    for (const Finding& one : findings_of(model, {.loaders = {Loader::vllm}}))
      if (out.find(one.rule) == std::string::npos) out += text(out.empty() ? "" : " ", one.rule);
    return out;
  };
  Model group = make_model(kMo, nvfp4);
  side(group).set("group_size", 32);
  EXPECT_EQ(both(group), "sidecar-file declared-scheme");
  Model inner = make_model(kMo, nvfp4);
  inner.words().remove("group_size");  // it is in the config group, too
  EXPECT_EQ(both(inner), "");
  side(inner).set("group_size", 8);
  EXPECT_EQ(both(inner), "sidecar-file declared-scheme");
  Model algorithm = make_model(kMo, nvfp4);
  side(algorithm).set("quant_algo", "MXFP8");
  EXPECT_EQ(both(algorithm), "sidecar-file declared-scheme");
}

TEST(Verify, ASidecarFileThatDeclaresTheSameWithOtherKeys) {
  Model model = make_model(kMo, bf16_scaled("fp8-channel"));
  add_cache_scales(model);
  const std::string before = verdict(model);
  side(model).set("exclude_modules", Json::array({"lm_head", "*.mlp.router"}));
  side(model).set("quant_algo", "fp8_per_channel_per_token");
  side(model).set("kv_cache_quant_algo", "fp8");
  model.words().set("kv_cache_scheme",
                    Json::object({{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}));
  EXPECT_EQ(verdict(model), before);
}

TEST(Verify, GroupSizesThatDifferInOneFile) {
  expect_breaks(kMo, preset("nvfp4"), "declared-scheme", "sglang", [](Model& model) {
    const_cast<Json&>(model.group()["weights"]).set("group_size", 32);
  });
}

// Without quantization_config servers use the sidecar file, and it is checked against the weights.
TEST(Verify, ASidecarFileAlone) {
  Model model = make_model(kMo, preset("nvfp4"));
  model.config.remove("quantization_config");
  EXPECT_EQ(verdict(model, {.loaders = {Loader::vllm, Loader::trtllm}}), "");
  side(model).set("quant_algo", "MXFP8");
  EXPECT_EQ(verdict(model, {.loaders = {Loader::vllm}}), "declared-scheme:vllm");
  side(model).remove("quant_algo");
  EXPECT_EQ(verdict(model, {.loaders = {Loader::trtllm}}), "declared-scheme:trtllm");
  Model list = make_model(kMo, preset("nvfp4"));
  list.config.remove("quantization_config");
  const_cast<Json&>(side(list)["exclude_modules"]).push(kQ);
  EXPECT_EQ(verdict(list, {.loaders = {Loader::vllm}}), "ignore-list-too-wide:vllm");
}

// vLLM matches an entry anywhere in a name; heads count as quantized unless they are on ModelOpt's
// list.
TEST(Verify, ModeloptsListAsServersReadIt) {
  Model model = make_model(kMo, bf16_scaled("fp8-channel"));
  for (Json* const list : {&model.words(), &side(model)})
    const_cast<Json&>((*list)[list == &model.words() ? "ignore" : "exclude_modules"])
        .push("model.layers.0.mlp.gate");
  EXPECT_EQ(verdict(model), "ignore-list-too-wide:vllm method:transformers");
  Model head = make_model(kMo, bf16_scaled("fp8-channel"));
  head.words().set("ignore", Json::array({"model.layers.0.mlp.router"}));
  side(head).set("exclude_modules", Json::array({"model.layers.0.mlp.router"}));
  EXPECT_EQ(verdict(head, {.loaders = {Loader::vllm, Loader::sglang, Loader::trtllm}}),
            "ignore-list:sglang ignore-list:vllm");
}

TEST(Verify, AnIndexThatLeavesTensorsOut) {
  const TemporaryFolder folder;
  const std::vector<TensorPlan> plans{{"a.weight", StoredType::bf16, {2, 2}},
                                      {"b.weight", StoredType::bf16, {2, 2}},
                                      {"c.weight", StoredType::bf16, {2, 2}}};
  safetensors::FileWriter writer(folder.path("model-00001-of-00001.safetensors"), plans,
                                 {.metadata = {{"format", "pt"}}});
  const std::vector<std::byte> bytes(8);
  for (const TensorPlan& plan : plans) writer.write(writer.at(plan.name), 0, bytes);
  writer.finish();
  folder.save("config.json", R"({"model_type": "x", "architectures": ["X"]})");
  const auto named = [&](std::vector<std::pair<std::string, std::size_t>> tensors) {
    folder.save(
        "model.safetensors.index.json",
        write_shard_index({{"model-00001-of-00001.safetensors"}, std::move(tensors), 3 * 8}));
    return verify(CheckpointReader(folder.path()));
  };
  EXPECT_TRUE(named({{"a.weight", 0}, {"b.weight", 0}, {"c.weight", 0}}).empty());
  for (const std::string left : {"a.weight", "b.weight", "c.weight"}) {
    std::vector<std::pair<std::string, std::size_t>> tensors;
    for (const TensorPlan& plan : plans)
      if (plan.name != left) tensors.emplace_back(plan.name, 0);
    const std::vector<Finding> found = named(tensors);
    ASSERT_EQ(found.size(), 4U);
    for (const Finding& one : found) {
      EXPECT_EQ(one.rule, "index");
      EXPECT_EQ(one.tensor, left);
      // Only transformers 4 follows the index; all others read the whole file.
      EXPECT_EQ(one.severity, one.loader == "transformers" ? Severity::error : Severity::warning);
    }
  }
}

// Which file a server reads where two hold the same tensors.
TEST(Verify, AnotherFileWithTheSameTensors) {
  const auto write = [](const TemporaryFolder& folder, const std::string& file,
                        const std::string& name) {
    safetensors::FileWriter writer(folder.path(file), {{name, StoredType::bf16, {2, 2}}},
                                   {.metadata = {{"format", "pt"}}});
    writer.write(writer.at(name), 0, std::vector<std::byte>(8));
    writer.finish();
  };
  const auto said = [](const TemporaryFolder& folder) {
    std::string out;
    for (const Finding& one : verify(CheckpointReader(folder.path()))) {
      EXPECT_EQ(one.rule, "index");
      EXPECT_EQ(one.severity, Severity::warning);
      out += text(one.loader, ":", one.tensor, " ");
    }
    return out;
  };
  const TemporaryFolder folder;
  write(folder, "model.safetensors", "a.weight");
  folder.save("config.json", R"({"model_type": "x", "architectures": ["X"]})");
  write(folder, "adapter.safetensors", "b.weight");
  folder.save("a.bin", "weights in other clothes");
  EXPECT_EQ(said(folder), "");
  write(folder, "consolidated.safetensors", "a.weight");
  EXPECT_EQ(said(folder), "vllm:consolidated.safetensors sglang:consolidated.safetensors ");
  std::filesystem::remove(folder.path("consolidated.safetensors"));
  write(folder, "extra.safetensors", "a.weight");
  const std::string all =
      "vllm:extra.safetensors sglang:extra.safetensors trtllm:extra.safetensors ";
  EXPECT_EQ(said(folder), all);
  folder.save("extra.safetensors", "no safetensors");
  EXPECT_EQ(said(folder), all);
  // With an index, for loaders that follow it.
  write(folder, "extra.safetensors", "a.weight");
  folder.save("model.safetensors.index.json",
              write_shard_index({{"model.safetensors"}, {{"a.weight", 0}}, 8}));
  EXPECT_EQ(said(folder), "trtllm:extra.safetensors ");
}

}  // namespace
}  // namespace octavo
