// A good checkpoint has no findings with the loaders that read its spelling; and for every rule one
// change that breaks it and nothing else.
#include "octavo/checkpoint/verify.h"

#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect_testing_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;
using safetensors::TensorPlan;

struct Stored {
  StoredType type;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};

// A layer of a model with all that is in its folder, to be changed before it is written.
struct Model {
  Dialect dialect;
  std::map<std::string, Stored> tensors{};
  Json config{}, hf_quant{};
  safetensors::Metadata metadata{};

  Json& words() { return const_cast<Json&>(config["quantization_config"]); }
  Json& group(std::string_view name = "group_0") {
    return const_cast<Json&>(words()["config_groups"][name]);
  }
};

struct Piece {
  std::string module;
  std::int64_t rows, cols;
};
const std::vector<Piece> kPieces{
    {"model.layers.0.self_attn.q_proj", 256, 256}, {"model.layers.0.self_attn.k_proj", 128, 256},
    {"model.layers.0.self_attn.v_proj", 128, 256}, {"model.layers.0.self_attn.o_proj", 256, 256},
    {"model.layers.0.mlp.gate_proj", 512, 256},    {"model.layers.0.mlp.up_proj", 512, 256},
    {"model.layers.0.mlp.down_proj", 256, 512}};
const std::string kQ = kPieces[0].module, kK = kPieces[1].module, kUp = kPieces[5].module;

Model make_model(Dialect dialect, const Scaling& scaling,
                 const std::vector<Piece>& pieces = kPieces) {
  Model model{.dialect = dialect};
  QuantizedModel all{{}, {"lm_head", "model.layers.0.mlp.router"}};
  for (const Piece& piece : pieces) {
    // The same values everywhere, so that what is fused has the same scale.
    const TestWeight weight =
        make_weight(dialect, piece.module + ".weight", {piece.rows, piece.cols}, scaling, 1000);
    all.weights.push_back(weight.weight);
    const std::vector<SpelledTensor> spelled = spell(dialect, weight.weight);
    for (const BandBytes& band : spell_band(dialect, weight.weight, 0, weight.bands[0])) {
      const TensorPlan& plan = spelled[band.tensor].plan;
      std::string bytes(band.bytes.size(), '\0');
      std::memcpy(bytes.data(), band.bytes.data(), bytes.size());
      model.tensors[plan.name] = {plan.type, plan.shape, bytes};
    }
  }
  // One scale for what is one for a tensor: as sharing makes it.
  for (auto& [name, tensor] : model.tensors) {
    const bool second = name.ends_with("global_scale") || name.ends_with("_scale_2");
    const bool single = scaling.tile == Tile{0, 0} && name.ends_with("_scale");
    if (second || single) {
      const float value = second && name.ends_with("global_scale") ? 26880.0F : 0x1p-10F;
      std::memcpy(tensor.bytes.data(), &value, sizeof value);
    }
  }
  model.tensors["model.norm.weight"] = {StoredType::bf16, {4}, std::string(8, '\0')};
  model.tensors["model.embed_tokens.weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
  model.tensors["lm_head.weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
  model.tensors["model.layers.0.mlp.router.weight"] = {
      StoredType::bf16, {4, 2}, std::string(16, '\0')};
  model.config = Json::object({{"model_type", "llama"}, {"torch_dtype", "bfloat16"}});
  model.metadata = metadata_of(dialect, all.weights);
  configure(dialect, all, model.config, model.hf_quant);
  return model;
}

std::vector<Finding> findings_of(const Model& model, const VerifyOptions& options = {}) {
  const TemporaryFolder folder;
  std::vector<TensorPlan> plans;
  for (const auto& [name, tensor] : model.tensors)
    plans.push_back({name, tensor.type, tensor.shape});
  safetensors::FileWriter writer(folder.path("model.safetensors"), plans,
                                 {.metadata = model.metadata});
  for (const auto& [name, tensor] : model.tensors)
    writer.write(writer.at(name), 0, std::as_bytes(std::span(tensor.bytes)));
  writer.finish();
  if (!model.config.is_null()) folder.save("config.json", model.config.dump());
  if (!model.hf_quant.is_null()) folder.save("hf_quant_config.json", model.hf_quant.dump());
  const std::vector<Finding> found = verify(CheckpointReader(folder.path()), options);
  std::set<std::string_view> rules;
  const std::vector<VerifyRule> known = verify_rules();
  for (const VerifyRule& rule : known) rules.insert(rule.id);
  for (const Finding& one : found) {
    EXPECT_TRUE(rules.contains(one.rule)) << one.rule;
    EXPECT_FALSE(one.message.empty());
  }
  return found;
}

// "rule:loader" of each finding, once; errors and warnings alike.
std::set<std::string> kinds(const std::vector<Finding>& findings) {
  std::set<std::string> out;
  for (const Finding& one : findings) out.insert(one.rule + ":" + one.loader);
  return out;
}

std::string joined(const std::set<std::string>& kinds) {
  std::string out;
  for (const std::string& kind : kinds) out += (out.empty() ? "" : " ") + kind;
  return out;
}

Scaling bf16_scaled(std::string_view name) {
  Scaling scaling = preset(name);
  scaling.scale.format = ScaleFormat::bf16;
  return scaling;
}

std::string verdict(const Model& model, const VerifyOptions& options = {}) {
  return joined(kinds(findings_of(model, options)));
}

constexpr Dialect kCt = Dialect::compressed_tensors, kMo = Dialect::modelopt,
                  kDs = Dialect::deepseek;

// The matrix: who reads what octavo writes.
TEST(Verify, good_checkpoints_have_the_findings_of_the_matrix) {
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("fp8-channel"))), "");
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("fp8-block"))), "");
  EXPECT_EQ(verdict(make_model(kCt, preset("fp8"))), "support:trtllm");
  EXPECT_EQ(verdict(make_model(kCt, preset("mxfp8"))), "support:sglang support:trtllm");
  EXPECT_EQ(verdict(make_model(kCt, preset("mxfp4"))), "support:sglang");
  EXPECT_EQ(verdict(make_model(kCt, preset("mxfp6"))),
            "support:sglang support:trtllm support:vllm");
  EXPECT_EQ(verdict(make_model(kCt, preset("nvfp4"))), "support:sglang support:trtllm");
  EXPECT_EQ(verdict(make_model(kDs, preset("fp8-block"))), "");
  EXPECT_EQ(verdict(make_model(kDs, preset("mxfp8"))), "support:vllm");
  EXPECT_EQ(verdict(make_model(kMo, preset("fp8-channel"))), "method:transformers");
  EXPECT_EQ(verdict(make_model(kMo, preset("fp8-block"))), "method:transformers");
  EXPECT_EQ(verdict(make_model(kMo, preset("nvfp4"))), "method:transformers");
  EXPECT_EQ(verdict(make_model(kMo, preset("mxfp8"))), "method:transformers support:sglang");
  EXPECT_EQ(verdict(make_model(kMo, preset("fp8"))),
            "activation-scales:sglang activation-scales:vllm method:transformers");
  for (const Dialect dialect : {Dialect::comfyui, Dialect::octavo})
    EXPECT_EQ(verdict(make_model(dialect, preset("nvfp4"))),
              "method:sglang method:transformers method:trtllm method:vllm");
  EXPECT_EQ(verdict(make_model(kMo, preset("nvfp4")), {.loaders = {Loader::vllm}}), "");
}

TEST(Verify, a_checkpoint_that_is_not_quantized_has_no_findings) {
  Model model{.dialect = kCt, .config = Json::object({{"model_type", "llama"}})};
  model.tensors["q_proj.weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
  EXPECT_TRUE(findings_of(model).empty());
  EXPECT_THROW((void)findings_of(model, {.tensor_parallel = 0}), Error);
}

// What the change adds to the findings; it must be of one rule.
void expect_breaks(Dialect dialect, const Scaling& scaling, std::string_view rule,
                   std::string_view loaders, const std::function<void(Model&)>& change,
                   const VerifyOptions& options = {}) {
  SCOPED_TRACE(rule);
  Model model = make_model(dialect, scaling);
  const std::set<std::string> before = kinds(findings_of(model));
  change(model);
  std::set<std::string> added;
  for (const std::string& kind : kinds(findings_of(model, options)))
    if (!before.contains(kind)) added.insert(kind);
  std::set<std::string> wanted;
  for (std::string_view rest = loaders; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    wanted.insert(std::string(rule) + ":" + std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  EXPECT_EQ(joined(added), joined(wanted));
}

void rename(Model& model, const std::string& from, const std::string& to) {
  model.tensors[to] = model.tensors.at(from);
  model.tensors.erase(from);
}

template <typename T>
void put(Model& model, const std::string& name, std::size_t index, T value) {
  std::memcpy(model.tensors.at(name).bytes.data() + index * sizeof value, &value, sizeof value);
}

TEST(Verify, every_rule_is_broken_by_one_change) {
  const Scaling channel = bf16_scaled("fp8-channel"), block = preset("fp8-block");
  constexpr std::string_view kAll = "sglang transformers trtllm vllm",
                             kServers = "sglang trtllm vllm";
  expect_breaks(kCt, channel, "parts", "all",
                [](Model& model) { model.tensors.erase(kQ + ".weight_scale"); });
  expect_breaks(kCt, channel, "method", kAll,
                [](Model& model) { model.config.remove("quantization_config"); });
  expect_breaks(kDs, block, "scale-names", "transformers sglang trtllm vllm", [](Model& model) {
    rename(model, kQ + ".weight_scale_inv", kQ + ".weight_scale");
  });
  expect_breaks(kMo, channel, "side-file", kServers, [](Model& model) { model.hf_quant = Json(); });
  expect_breaks(kMo, preset("nvfp4"), "side-file", "vllm", [](Model& model) {
    const_cast<Json&>(model.hf_quant["quantization"]).remove("group_size");
  });
  expect_breaks(kMo, channel, "side-file", kServers, [](Model& model) {
    const_cast<Json&>(model.hf_quant["quantization"]).set("quant_algo", "NVFP4");
    const_cast<Json&>(model.hf_quant["quantization"]).set("group_size", 16);
  });
  expect_breaks(kCt, channel, "file-metadata", "transformers",
                [](Model& model) { model.metadata.clear(); });
  expect_breaks(kCt, channel, "groups", "trtllm", [](Model& model) {
    const_cast<Json&>(model.words()["config_groups"]).set("group_1", model.group());
  });
  expect_breaks(kCt, channel, "code-types", kAll, [](Model& model) {
    model.tensors.at(kQ + ".weight").type = StoredType::f8_e5m2;
    model.tensors.at(kQ + ".weight").bytes.assign(256 * 256, '\0');
  });
  expect_breaks(kCt, preset("mxfp8"), "scale-types", kAll, [](Model& model) {
    model.tensors.at(kQ + ".weight_scale").type = StoredType::f8_e8m0;
  });
  expect_breaks(kCt, channel, "scale-shapes", kAll,
                [](Model& model) { model.tensors.at(kQ + ".weight_scale").shape = {256}; });
  expect_breaks(kMo, block, "scale-shapes", kAll, [](Model& model) {
    model.tensors.at(kQ + ".weight_scale").shape = {2, 2};
  });
  expect_breaks(kDs, block, "divisible", kAll, [](Model& model) {
    model.tensors.at(kQ + ".weight").shape = {256, 200};
    model.tensors.at(kQ + ".weight").bytes.resize(256 * 200);
  });
  expect_breaks(kDs, block, "tensor-parallel", kServers, [](Model&) {}, {.tensor_parallel = 4});
  expect_breaks(kCt, channel, "tensor-parallel", kServers, [](Model&) {}, {.tensor_parallel = 3});
  expect_breaks(kCt, channel, "activation-scales", kAll, [](Model& model) {
    const_cast<Json&>(model.group()["input_activations"]).set("dynamic", false);
  });
  expect_breaks(kDs, block, "scale-numbers", kAll, [](Model& model) {
    put(model, kQ + ".weight_scale_inv", 1, std::numeric_limits<float>::quiet_NaN());
  });
  expect_breaks(kCt, preset("fp8"), "scale-numbers", "vllm", [](Model& model) {
    for (const char* const one : {"q_proj", "k_proj", "v_proj"})
      put(model, text("model.layers.0.self_attn.", one, ".weight_scale"), 0, 0x1p-20F);
  });
  expect_breaks(kCt, preset("fp8"), "scale-bf16", "transformers",
                [](Model& model) { put(model, kPieces[3].module + ".weight_scale", 0, 0.001F); });
  expect_breaks(kDs, block, "scale-powers", kAll,
                [](Model& model) { model.words().set("scale_fmt", "ue8m0"); });
  expect_breaks(kCt, preset("nvfp4"), "second-level", kAll, [](Model& model) {
    put(model, kPieces[3].module + ".weight_global_scale", 0, 1.0F / 26880);
  });
  expect_breaks(kCt, preset("nvfp4"), "fused-scales", kServers,
                [](Model& model) { put(model, kK + ".weight_global_scale", 0, 13440.0F); });
  expect_breaks(kCt, preset("fp8"), "fused-scales", kServers,
                [](Model& model) { put(model, kUp + ".weight_scale", 0, 0x1p-9F); });
  expect_breaks(kCt, channel, "fused-schemes", kServers, [](Model& model) {
    model.tensors[kQ + ".weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
    model.tensors.erase(kQ + ".weight_scale");
    const_cast<Json&>(model.words()["ignore"]).push(kQ);
  });
  expect_breaks(kCt, channel, "special-modules", kAll, [](Model& model) {
    rename(model, kPieces[3].module + ".weight", "model.embed_tokens.weight");
    rename(model, kPieces[3].module + ".weight_scale", "model.embed_tokens.weight_scale");
  });
  expect_breaks(kCt, channel, "skip-list", kAll,
                [](Model& model) { model.words().set("ignore", Json::array({"lm_head"})); });
  // The glob is no expression, which is what transformers takes it for.
  expect_breaks(kDs, block, "skip-list", "transformers vllm", [](Model& model) {
    model.words().set("modules_to_not_convert",
                      Json::array({"lm_head", "layers.0.mlp.router", "*mlp.router"}));
  });
  expect_breaks(kCt, channel, "skip-list-too-wide", kAll, [](Model& model) {
    const_cast<Json&>(model.words()["ignore"]).push("re:.*down_proj");
  });
  expect_breaks(kCt, channel, "said-scheme", kAll, [](Model& model) {
    const_cast<Json&>(model.group()["weights"]).set("strategy", "tensor");
  });
  expect_breaks(kCt, preset("mxfp8"), "said-scheme", kAll, [](Model& model) {
    const_cast<Json&>(model.group()["weights"]).remove("scale_dtype");
  });
}

// What is wrong with a checkpoint and cannot be seen in one tensor alone, or only in its numbers.
TEST(Verify, lies_and_damage) {
  const Scaling channel = bf16_scaled("fp8-channel"), block = preset("fp8-block");
  constexpr std::string_view kAll = "sglang transformers trtllm vllm",
                             kServers = "sglang trtllm vllm";
  const std::string up = kUp + ".weight_scale_inv";  // of 512 x 256: a grid of [4, 2]
  // A grid that lies the other way has as many scales.
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
    expect_breaks(kDs, block, "said-scheme", kAll,
                  [&](Model& model) { model.words().set("weight_block_size", size); });
  expect_breaks(kCt, block, "said-scheme", kAll, [](Model& model) {
    const_cast<Json&>(model.group()["weights"]).set("block_structure", Json::array({64, 64}));
  });
  expect_breaks(kCt, channel, "said-scheme", kAll, [](Model& model) {
    model.group().set("targets", Json::array({"re:.*self_attn"}));
  });
  expect_breaks(kMo, channel, "said-scheme", kServers, [](Model& model) {
    model.words().set("quant_algo", "FP8");
    const_cast<Json&>(model.hf_quant["quantization"]).set("quant_algo", "FP8");
  });
  expect_breaks(kDs, block, "activation-scales", kAll,
                [](Model& model) { model.words().set("activation_scheme", "static"); });
  expect_breaks(kDs, block, "activation-scales", "sglang vllm",
                [](Model& model) { model.words().set("activation_scheme", "dynamc"); });
  // Reciprocals: of one weight, and of all.
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

TEST(Verify, zero_scales_over_zeros_are_nothing) {
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

Model three_layers() {
  std::vector<Piece> pieces;
  for (int layer = 0; layer < 3; ++layer)
    for (const char* const part :
         {"self_attn.q_proj", "self_attn.o_proj", "mlp.experts.0.up_proj", "mlp.experts.1.up_proj"})
      pieces.push_back({text("model.layers.", layer, ".", part), 128, 128});
  return make_model(kDs, preset("fp8-block"), pieces);
}

TEST(Verify, layers_that_lack_something) {
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
  // A first layer of another kind has no experts, and lacks none.
  EXPECT_EQ(missing("model.layers.0.mlp.experts."), "");
}

TEST(Verify, a_folder_without_config_or_weights_does_not_load) {
  Model model{.dialect = kCt, .config = Json()};
  model.tensors["q_proj.weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
  EXPECT_EQ(verdict(model), "config:sglang config:transformers config:trtllm config:vllm");
  model.config = Json::object({{"model_type", "llama"}});
  model.tensors.clear();
  EXPECT_EQ(verdict(model), "weights:sglang weights:transformers weights:trtllm weights:vllm");
}

// As vLLM's validate_fp8_block_shape has it: the last part of a fused matrix, and what stands
// alone.
TEST(Verify, a_last_block_that_is_cut_short) {
  const auto with = [](const std::string& module, Dialect dialect) {
    return verdict(make_model(dialect,
                              dialect == kCt ? bf16_scaled("fp8-block") : preset("fp8-block"),
                              {{"model.layers.0." + module, 576, 256}}));
  };
  EXPECT_EQ(with("self_attn.kv_a_proj_with_mqa", kDs), "divisible:transformers");
  EXPECT_EQ(with("self_attn.kv_a_proj_with_mqa", kCt), "");
  EXPECT_EQ(with("self_attn.o_proj", kDs), "divisible:transformers");
  EXPECT_EQ(with("mlp.up_proj", kCt), "divisible:sglang divisible:trtllm");
  const Model split = make_model(kCt, bf16_scaled("fp8-block"),
                                 {{"model.layers.0.self_attn.kv_a_proj_with_mqa", 576, 256}});
  EXPECT_EQ(verdict(split, {.tensor_parallel = 8}), "");  // every device has it whole
}

// transformers matches from the beginning of names, so a router's name skips what begins like it.
TEST(Verify, a_name_that_others_begin_with) {
  Model model = make_model(kDs, preset("fp8-block"));
  const_cast<Json&>(model.words()["modules_to_not_convert"]).push("model.layers.0.mlp.gate");
  EXPECT_EQ(verdict(model), "skip-list-too-wide:transformers");
}

TEST(Verify, experts_that_transformers_cannot_put_together) {
  const std::vector<Piece> experts{{"model.layers.0.mlp.experts.0.up_proj", 128, 128},
                                   {"model.layers.0.mlp.experts.1.up_proj", 128, 128}};
  constexpr std::string_view kHf = "support:transformers";
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("fp8-channel"), experts)), "");
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("fp8-block"), experts)), kHf);
  EXPECT_EQ(verdict(make_model(kCt, preset("nvfp4"), experts), {.loaders = {Loader::transformers}}),
            kHf);
  EXPECT_EQ(verdict(make_model(kDs, preset("fp8-block"), experts)), "");
}

TEST(Verify, stacks_of_experts) {
  Model model = make_model(kDs, preset("fp8-block"));
  model.tensors["model.layers.0.mlp.experts.down_proj"] = {
      StoredType::f8_e4m3, {2, 128, 128}, std::string(2 * 128 * 128, '\0')};
  model.tensors["model.layers.0.mlp.experts.down_proj_scale_inv"] = {
      StoredType::f32, {2, 1, 1}, std::string("\0\0\x80\x3f\0\0\x80\x3f", 8)};
  EXPECT_EQ(verdict(model), "stacks:sglang stacks:trtllm stacks:vllm");
}

// Patterns come from files: none may take forever or end the program.
TEST(Verify, patterns_that_are_none) {
  Model model = make_model(kCt, bf16_scaled("fp8-channel"));
  model.words().set("ignore",
                    Json::array({"lm_head", "model.layers.0.mlp.router", "re:(", "re:[z-a]",
                                 "re:(a*)*b", std::string(100'000, '('), 7, Json()}));
  EXPECT_EQ(verdict(model),
            "skip-list:sglang skip-list:transformers skip-list:trtllm skip-list:vllm");
  for (const Finding& finding : findings_of(model))
    EXPECT_EQ(finding.severity, Severity::warning) << finding.message;
  model.words().set("ignore", Json::array({"re:(?!model\\.layers).*"}));  // looks ahead
  for (const Finding& finding : findings_of(model)) {
    EXPECT_EQ(finding.severity, Severity::warning);
    EXPECT_NE(finding.message.find("not checked"), std::string::npos) << finding.message;
  }
}

TEST(Verify, rules_have_names_of_their_own) {
  std::set<std::string_view> ids;
  for (const VerifyRule& rule : verify_rules()) EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
  EXPECT_EQ(parse_loader("trtllm"), Loader::trtllm);
  EXPECT_THROW((void)parse_loader("ollama"), Error);
}

}  // namespace
}  // namespace octavo
