// Does a checkpoint match its config as a whole: quantized or not, by codes and scales alone, each
// config group as declared?
#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;

// The unquantized model: bf16 matrices under the names of the weights.
Model unquantized(Dialect dialect, const Scaling& scaling) {
  Model model = make_model(dialect, scaling);
  std::erase_if(model.tensors,
                [](const auto& one) { return one.first.find("_proj.") != std::string::npos; });
  for (const Piece& piece : kPieces)
    model.tensors[piece.module + ".weight"] = {
        StoredType::bf16,
        {static_cast<std::uint64_t>(piece.rows), static_cast<std::uint64_t>(piece.cols)},
        std::string(static_cast<std::size_t>(2 * piece.rows * piece.cols), '\x3C')};
  return model;
}

void drop_scales(Model& model) {
  std::erase_if(model.tensors,
                [](const auto& one) { return one.first.find("scale") != std::string::npos; });
}

TEST(VerifyQuantized, AConfigThatSpeaksOfCodesWhereThereAreNone) {
  constexpr std::string_view kOfAll =
      "quantized:sglang quantized:transformers quantized:trtllm quantized:vllm";
  EXPECT_EQ(verdict(unquantized(kCt, bf16_scaled("fp8-channel"))), kOfAll);
  EXPECT_EQ(verdict(unquantized(kCt, preset("nvfp4"))), kOfAll);
  EXPECT_EQ(verdict(unquantized(kDs, preset("fp8-block"))), kOfAll);
  EXPECT_EQ(verdict(unquantized(kDs, preset("mxfp8"))), kOfAll);
  // transformers ignores ModelOpt's quant_method and loads weights unquantized.
  constexpr std::string_view kOfServers = "quantized:sglang quantized:trtllm quantized:vllm";
  Model modelopt = unquantized(kMo, preset("nvfp4"));
  EXPECT_EQ(verdict(modelopt), kOfServers);
  modelopt.config.remove("quantization_config");
  EXPECT_EQ(verdict(modelopt), kOfServers);
  modelopt.hf_quant = Json();
  EXPECT_EQ(verdict(modelopt), "");
  for (const Finding& one : findings_of(unquantized(kDs, preset("fp8-block"))))
    EXPECT_EQ(one.severity, Severity::error);
}

TEST(VerifyQuantized, AConfigThatIgnoresAllWeightsIsConsistent) {
  Model skipped = unquantized(kCt, bf16_scaled("fp8-channel"));
  skipped.words().set("ignore", Json::array({"re:.*"}));
  EXPECT_EQ(verdict(skipped), "");
  // KV cache quantization only.
  Model cache = unquantized(kCt, bf16_scaled("fp8-channel"));
  cache.words().set("config_groups", Json::object());
  cache.words().set(
      "kv_cache_scheme",
      Json::object(
          {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}}));
  add_cache_scales(cache);
  EXPECT_EQ(verdict(cache), "");
  cache.tensors.erase("model.layers.0.self_attn.v_scale");
  const std::vector<Finding> found = findings_of(cache, {.loaders = {Loader::vllm}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rule, "activation-scales");
  EXPECT_EQ(found[0].tensor, "model.layers.0.self_attn.v_scale");
  EXPECT_EQ(found[0].severity, Severity::warning);
}

TEST(VerifyQuantized, CodesWithoutScalesAndWithoutAConfig) {
  for (const char* const name : {"fp8-block", "fp8-channel"}) {
    Model model = make_model(kCt, bf16_scaled(name));
    drop_scales(model);
    model.config.remove("quantization_config");
    std::set<std::string> tensors;
    for (const Finding& one : findings_of(model)) {
      EXPECT_EQ(one.rule, "quantized");
      EXPECT_EQ(one.severity, Severity::error);
      tensors.insert(one.tensor);
    }
    EXPECT_EQ(tensors.size(), kPieces.size());
    EXPECT_FALSE(findings_of(model, {.codes = false}).empty());
  }
  // Packed FP4 bytes, whatever config.json declares.
  Model four = make_model(kMo, preset("nvfp4"));
  drop_scales(four);
  EXPECT_TRUE(kinds(findings_of(four)).contains("quantized:vllm"));
  four.config.remove("quantization_config");
  four.hf_quant = Json();
  EXPECT_EQ(verdict(four, {.loaders = {Loader::vllm}}), "quantized:vllm");
}

// A cast without any scale: 0x08 is 2^-6 in E4M3.
TEST(VerifyQuantized, Fp8AsNumbersIsAWarning) {
  Model model = unquantized(kCt, bf16_scaled("fp8-channel"));
  model.config.remove("quantization_config");
  model.tensors.at(kQ + ".weight") = {
      StoredType::f8_e4m3, {256, 256}, std::string(256 * 256, '\x08')};
  const std::vector<Finding> found = findings_of(model, {.loaders = {Loader::vllm}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].severity, Severity::warning);
  EXPECT_EQ(found[0].tensor, kQ + ".weight");
  model.tensors.at(kQ + ".weight").bytes[65535] = '\xF8';  // -256
  EXPECT_EQ(findings_of(model, {.loaders = {Loader::vllm}})[0].severity, Severity::error);
}

TEST(VerifyQuantized, AConfigWithoutAMethod) {
  for (const Json& words : {Json::object(), Json::object({{"quant_method", 7}})}) {
    Model model = unquantized(kCt, bf16_scaled("fp8-channel"));
    model.config.set("quantization_config", words);
    EXPECT_EQ(verdict(model), "method:sglang method:transformers method:trtllm method:vllm");
  }
}

TEST(VerifyQuantized, TransformsAndZerosThatAreLeftOut) {
  const Json hadamard = Json::object(
      {{"config_groups", Json::object({{"u", Json::object({{"type", "hadamard"}})}})}});
  const Json sparse = Json::object({{"format", "sparse-24-bitmask"}});
  for (const auto& [key, value] : std::vector<Json::Member>{{"transform_config", hadamard},
                                                            {"transform_config", true},
                                                            {"sparsity_config", sparse},
                                                            {"sparsity_config", 7}}) {
    Model model = make_model(kCt, bf16_scaled("fp8-channel"));
    model.words().set(key, value);
    const std::vector<Finding> found = findings_of(model);
    ASSERT_EQ(found.size(), 1U) << key;
    EXPECT_EQ(found[0].rule, "transforms");
    EXPECT_EQ(found[0].loader, "all");
    EXPECT_NE(found[0].message.find("not checked"), std::string::npos);
  }
  // What other tools write where there is no transform.
  Model good = make_model(kCt, bf16_scaled("fp8-channel"));
  for (const Json& none :
       {Json(), Json::object(), Json::object({{"config_groups", Json::object()}})}) {
    good.words().set("transform_config", none);
    EXPECT_EQ(verdict(good), "");
  }
  good.words().set("sparsity_config", Json::object());
  EXPECT_EQ(verdict(good), "");
  good.words().set("sparsity_config",
                   Json::object({{"format", "dense"}, {"sparsity_structure", "unstructured"}}));
  EXPECT_EQ(verdict(good), "");
}

// AWQ as ModelOpt exports it: a weight is correct only with pre_quant_scale on the activations.
TEST(VerifyQuantized, ScalesThatBelongToActivations) {
  for (const std::string_view name : {"nvfp4", "fp8-channel"}) {
    Model model = make_model(kMo, preset(name));
    const std::set<std::string> before = kinds(findings_of(model));
    const auto add = [&](const std::string& module) {
      model.tensors[module + ".pre_quant_scale"] = {
          StoredType::bf16, {256}, std::string(512, '\x3F')};
    };
    add(kQ);
    add(kK);
    std::string message;
    for (const Finding& one : findings_of(model)) {
      if (before.contains(one.rule + ":" + one.loader)) continue;
      EXPECT_EQ(one.rule, "transforms");
      EXPECT_EQ(one.loader, "all");
      EXPECT_EQ(one.severity, Severity::error);
      message += one.message;
    }
    EXPECT_NE(message.find("self_attn.k_proj.pre_quant_scale' and 1 more"), std::string::npos)
        << message;
  }
  // A pre_quant_scale without codes is an error, too.
  Model plain = unquantized(kMo, preset("nvfp4"));
  plain.config.remove("quantization_config");
  plain.hf_quant = Json();
  plain.tensors[kQ + ".pre_quant_scale"] = {StoredType::bf16, {256}, std::string(512, '\x3F')};
  EXPECT_EQ(verdict(plain), "transforms:all");
}

// Two schemes in one model: one for attention, the other for the rest.
Model mixed(std::string_view attention, std::string_view rest) {
  std::vector<Piece> first(kPieces.begin(), kPieces.begin() + 4);
  std::vector<Piece> second(kPieces.begin() + 4, kPieces.end());
  Model model = make_model(kCt, preset(attention), first);
  Model other = make_model(kCt, preset(rest), second);
  model.tensors.merge(other.tensors);
  Json groups = Json::object();
  Json group = model.group();
  group.set("targets", Json::array({"re:.*self_attn.*"}));
  groups.set("group_0", group);
  group = other.group();
  group.set("targets", Json::array({"re:.*mlp\\..*_proj"}));
  groups.set("group_1", group);
  model.words().set("config_groups", groups);
  model.words().set("format", "mixed-precision");
  return model;
}

TEST(VerifyQuantized, EachWeightHasTheActivationsOfItsGroup) {
  // FP8 activations are quantized, NVFP4's (A16) are not.
  const auto supported = [](const Model& model) {
    std::string out;
    for (const Finding& one : findings_of(model))
      if (one.rule == "support") out += text(one.loader, ":", one.tensor, " ");
    return out;
  };
  const std::string down = "model.layers.0.mlp.down_proj";
  EXPECT_EQ(supported(mixed("fp8-channel", "nvfp4")), text("sglang:", down, " trtllm:", down, " "));
  // A full name has precedence over an expression, and an expression over a class, in any order.
  Model by_class = mixed("fp8-channel", "nvfp4");
  by_class.group("group_0").set("targets", Json::array({"Linear"}));
  EXPECT_EQ(supported(by_class), text("sglang:", down, " trtllm:", down, " "));
  by_class.group("group_0").set("targets", Json::array({"Linear", down}));
  const std::string gate = "model.layers.0.mlp.gate_proj";
  EXPECT_EQ(supported(by_class), text("sglang:", gate, " trtllm:", gate, " "));
  // MXFP4's are not quantized either, so that only SGLang rejects the mix.
  EXPECT_EQ(supported(mixed("fp8-channel", "mxfp4")), text("sglang:", down, " "));
  Model four = mixed("fp8-channel", "mxfp4");
  four.group("group_1").set("input_activations",
                            Json::object({{"num_bits", 4}, {"type", "float"}, {"dynamic", true}}));
  EXPECT_EQ(supported(four), text("sglang:", down, " trtllm:", down, " "));
  // Static activation scales of one config group are not required of the other.
  Model is_static = mixed("fp8-channel", "nvfp4");
  const_cast<Json&>(is_static.group()["input_activations"]).set("dynamic", false);
  std::set<std::string> asked;
  for (const Finding& one : findings_of(is_static, {.loaders = {Loader::vllm}}))
    if (one.rule == "activation-scales") asked.insert(one.tensor);
  EXPECT_EQ(asked, (std::set<std::string>{kQ, kK, kPieces[2].module, kPieces[3].module}));
}

TEST(VerifyQuantized, ScalesOfOutputsAndOfTheCache) {
  const Scaling channel = bf16_scaled("fp8-channel");
  const Json output = Json::object({{"num_bits", 8}, {"type", "float"}, {"dynamic", false}});
  Model model = make_model(kCt, channel);
  model.group().set("output_activations", output);
  const std::vector<Finding> found = findings_of(model);
  for (const Finding& one : found) {
    EXPECT_EQ(one.rule, "activation-scales");
    EXPECT_EQ(one.severity, one.loader == "transformers" ? Severity::error : Severity::warning);
  }
  EXPECT_EQ(found.size(), 4 * kPieces.size());
  expect_breaks(kCt, channel, "activation-scales", kAll,
                [&](Model& other) { other.words().set("kv_cache_scheme", output); });
  const auto with_scales = [&](std::string_view k, std::string_view v) {
    Model other = make_model(kCt, channel);
    other.words().set("kv_cache_scheme", output);
    add_cache_scales(other, k, v);
    return verdict(other);
  };
  EXPECT_EQ(with_scales("k_scale", "v_scale"), "");
  EXPECT_EQ(with_scales("k_proj.k_scale", "v_proj.v_scale"), "");
  EXPECT_EQ(with_scales("k_proj.output_scale", "v_proj.output_scale"), "");
}

TEST(VerifyQuantized, ASidecarFileThatDeclaresNothingOrSomethingElse) {
  const Scaling channel = bf16_scaled("fp8-channel");
  for (const Json& side : {Json::object(), Json::object({{"quantization", 7}})})
    expect_breaks(kMo, channel, "sidecar-file", kServers,
                  [&](Model& model) { model.hf_quant = side; });
  expect_breaks(kCt, channel, "sidecar-file", kServers,
                [](Model& model) { model.hf_quant = Json::object(); });
  expect_breaks(kCt, channel, "sidecar-file", "trtllm",
                [&](Model& model) { model.hf_quant = make_model(kMo, channel).hf_quant; });
}

// An expression that is invalid in every regex engine stops loaders; one that only octavo cannot
// parse is merely not checked.
TEST(VerifyQuantized, ExpressionsThatAreNone) {
  const auto severity = [](const char* entry) {
    Model model = make_model(kCt, bf16_scaled("fp8-channel"));
    const_cast<Json&>(model.words()["ignore"]).push(entry);
    const std::vector<Finding> found = findings_of(model, {.loaders = {Loader::vllm}});
    if (found.empty()) return "";
    EXPECT_EQ(found.size(), 1U) << entry;
    EXPECT_EQ(found[0].rule, "ignore-list") << entry;
    return found[0].severity == Severity::error ? "error" : "warning";
  };
  for (const char* const none : {"re:(", "re:)", "re:a)b(", "re:[", "re:[^", "re:[]", "re:x[\\]",
                                 "re:*x", "re:(+x)", "re:x|?", "re:x\\", "re:((x)", "re:[(]("})
    EXPECT_STREQ(severity(none), "error") << none;
  for (const char* const other :
       {"re:x(?<!y)", "re:(?<=x)[(]", "re:(?P<n>x)", "re:(?<=[)])x", "re:(?<!x)\\(", "re:(x)\\1"})
    EXPECT_STREQ(severity(other), "warning") << other;
  for (const char* const good : {"re:x", "re:[(]x", "re:\\(x", "(", "re:[x*]", "re:(?!.)"})
    EXPECT_STREQ(severity(good), "") << good;
}

}  // namespace
}  // namespace octavo
