// A correct checkpoint has no findings for the loaders that support its dialect; and for every rule
// one change that breaks this rule and no other.
#include "octavo/checkpoint/verify/verify.h"

#include <algorithm>

#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;

// The support matrix: which loader reads what octavo writes.
TEST(Verify, GoodCheckpointsHaveTheFindingsOfTheMatrix) {
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("fp8-channel"))), "");
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("fp8-block"))), "");
  EXPECT_EQ(verdict(make_model(kCt, preset("fp8"))), "support:trtllm");
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("int8-channel"))), "support:trtllm");
  EXPECT_EQ(verdict(make_model(kCt, preset("int4"))), "support:trtllm");
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

TEST(Verify, ACheckpointThatIsNotQuantizedHasNoFindings) {
  Model model{.dialect = kCt,
              .config = Json::object(
                  {{"model_type", "test"}, {"architectures", Json::array({"TestModel"})}})};
  model.tensors["q_proj.weight"] = {StoredType::bf16, {4, 2}, std::string(16, '\0')};
  EXPECT_TRUE(findings_of(model).empty());
  EXPECT_THROW((void)findings_of(model, {.tensor_parallel = 0}), Error);
}

// Of INT8: what it declares of types and bits, and codes beyond the bits that are declared.
TEST(Verify, Int8RulesAreBrokenByOneChange) {
  const Scaling channel = bf16_scaled("int8-channel");
  const auto group = [](Model& model, const char* part) -> Json& {
    return const_cast<Json&>(model.group()[part]);
  };
  expect_breaks(kCt, channel, "parts", "all",
                [](Model& model) { model.tensors.erase(kQ + ".weight_scale"); });
  expect_breaks(kCt, channel, "declared-keys", kAll,
                [&](Model& model) { group(model, "input_activations").set("type", "float"); });
  expect_breaks(kCt, channel, "declared-keys", kAll, [](Model& model) {
    const_cast<Json&>(model.words()).set("format", "float-quantized");
  });
  // Of another type than their inputs, too.
  Model other = make_model(kCt, channel);
  group(other, "weights").set("type", "float");
  EXPECT_NE(verdict(other).find("declared-scheme:"), std::string::npos) << verdict(other);
  // Codes beyond the bits that are declared, and no others.
  Model narrow = make_model(kCt, channel);
  group(narrow, "weights").set("num_bits", 4);
  for (auto& [name, tensor] : narrow.tensors)
    for (char& code : tensor.bytes)
      if (tensor.type == StoredType::i8)
        code = static_cast<char>(std::clamp<int>(static_cast<signed char>(code), -8, 7));
  EXPECT_EQ(verdict(narrow).find("codes:"), std::string::npos) << verdict(narrow);
  narrow.tensors[kQ + ".weight"].bytes[300] = 8;
  std::string message;
  for (const Finding& one : findings_of(narrow))
    if (one.rule == "codes") message = one.message;
  EXPECT_NE(message.find("1 code is beyond the 4 bits"), std::string::npos) << message;
  EXPECT_NE(message.find("row 1, column 44"), std::string::npos) << message;
  // A row with a scale of zero is one of zeros; -128 is none, though it looks like a minus zero.
  Model zeros = make_model(kCt, channel);
  std::string &codes = zeros.tensors[kQ + ".weight"].bytes,
              &scales = zeros.tensors[kQ + ".weight_scale"].bytes;
  std::fill_n(codes.begin(), 256, '\0');
  std::fill_n(scales.begin(), 2, '\0');
  EXPECT_EQ(verdict(zeros).find("zero-scales:"), std::string::npos) << verdict(zeros);
  codes[17] = '\x80';
  EXPECT_NE(verdict(zeros).find("zero-scales:"), std::string::npos) << verdict(zeros);
}

TEST(Verify, EveryRuleIsBrokenByOneChange) {
  const Scaling channel = bf16_scaled("fp8-channel"), block = preset("fp8-block");
  expect_breaks(kCt, channel, "parts", "all",
                [](Model& model) { model.tensors.erase(kQ + ".weight_scale"); });
  expect_breaks(kCt, channel, "method", kAll,
                [](Model& model) { model.config.remove("quantization_config"); });
  expect_breaks(kDs, block, "scale-names", "transformers sglang trtllm vllm", [](Model& model) {
    rename(model, kQ + ".weight_scale_inv", kQ + ".weight_scale");
  });
  expect_breaks(kMo, channel, "sidecar-file", kServers,
                [](Model& model) { model.hf_quant = Json(); });
  expect_breaks(kMo, preset("nvfp4"), "sidecar-file", "vllm", [](Model& model) {
    const_cast<Json&>(model.hf_quant["quantization"]).remove("group_size");
  });
  expect_breaks(kMo, channel, "sidecar-file", kServers, [](Model& model) {
    const_cast<Json&>(model.hf_quant["quantization"]).set("kv_cache_quant_algo", "FP8");
    add_cache_scales(model);
  });
  expect_breaks(kCt, channel, "file-metadata", "transformers",
                [](Model& model) { model.metadata.clear(); });
  expect_breaks(kCt, channel, "groups", "trtllm", [](Model& model) {
    const_cast<Json&>(model.words()["config_groups"]).set("group_1", model.group());
  });
  expect_breaks(kCt, channel, "code-types", kAll, [](Model& model) {
    model.tensors.at(kQ + ".weight").type = StoredType::f8_e5m2;
    model.tensors.at(kQ + ".weight").bytes.assign(256 * 256, '\x74');  // 2^14
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
  expect_breaks(kCt, channel, "ignore-list", kAll,
                [](Model& model) { model.words().set("ignore", Json::array({"lm_head"})); });
  // The glob is no valid expression, and transformers treats it as one.
  expect_breaks(kDs, block, "ignore-list", "transformers vllm", [](Model& model) {
    model.words().set("modules_to_not_convert",
                      Json::array({"lm_head", "layers.0.mlp.router", "*mlp.router"}));
  });
  expect_breaks(kCt, channel, "ignore-list-too-wide", kAll, [](Model& model) {
    const_cast<Json&>(model.words()["ignore"]).push("re:.*down_proj");
  });
  expect_breaks(kCt, channel, "declared-scheme", kAll, [](Model& model) {
    const_cast<Json&>(model.group()["weights"]).set("strategy", "tensor");
  });
  expect_breaks(kCt, preset("mxfp8"), "declared-scheme", kAll, [](Model& model) {
    const_cast<Json&>(model.group()["weights"]).remove("scale_dtype");
  });
}

// Rules of vLLM's validate_fp8_block_shape and TensorRT-LLM's FP8BlockScalesLinearMethod: the last
// part of a fused matrix, and matrices that are not fused, may be ragged.
TEST(Verify, ALastBlockThatIsCutShort) {
  const auto with = [](const std::string& module, Dialect dialect) {
    return verdict(make_model(dialect,
                              dialect == kCt ? bf16_scaled("fp8-block") : preset("fp8-block"),
                              {{"model.layers.0." + module, 576, 256}}));
  };
  EXPECT_EQ(with("self_attn.kv_a_proj_with_mqa", kDs), "divisible:transformers");
  EXPECT_EQ(with("self_attn.kv_a_proj_with_mqa", kCt), "");
  EXPECT_EQ(with("self_attn.o_proj", kDs), "divisible:transformers");
  EXPECT_EQ(with("mlp.up_proj", kCt), "divisible:sglang");
  const Model split = make_model(kCt, bf16_scaled("fp8-block"),
                                 {{"model.layers.0.self_attn.kv_a_proj_with_mqa", 576, 256}});
  EXPECT_EQ(verdict(split, {.tensor_parallel = 8}), "");  // replicated on every device
}

// transformers matches from the beginning of names, so a router's name also ignores modules whose
// names begin with it.
TEST(Verify, ANameThatOthersBeginWith) {
  Model model = make_model(kDs, preset("fp8-block"));
  const_cast<Json&>(model.words()["modules_to_not_convert"]).push("model.layers.0.mlp.gate");
  EXPECT_EQ(verdict(model), "ignore-list-too-wide:transformers");
}

TEST(Verify, ExpertsThatTransformersCannotPutTogether) {
  const std::vector<Piece> experts{{"model.layers.0.mlp.experts.0.up_proj", 128, 128},
                                   {"model.layers.0.mlp.experts.1.up_proj", 128, 128}};
  constexpr std::string_view kHf = "support:transformers";
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("fp8-channel"), experts)), "");
  EXPECT_EQ(verdict(make_model(kCt, bf16_scaled("fp8-block"), experts)), kHf);
  EXPECT_EQ(verdict(make_model(kCt, preset("nvfp4"), experts), {.loaders = {Loader::transformers}}),
            kHf);
  EXPECT_EQ(verdict(make_model(kDs, preset("fp8-block"), experts)), "");
}

TEST(Verify, StacksOfExperts) {
  Model model = make_model(kDs, preset("fp8-block"));
  model.tensors["model.layers.0.mlp.experts.down_proj"] = {
      StoredType::f8_e4m3, {2, 128, 128}, std::string(2 * 128 * 128, '\0')};
  model.tensors["model.layers.0.mlp.experts.down_proj_scale_inv"] = {
      StoredType::f32, {2, 1, 1}, std::string("\0\0\x80\x3f\0\0\x80\x3f", 8)};
  EXPECT_EQ(verdict(model), "stacks:sglang stacks:trtllm stacks:vllm");
}

// Patterns are untrusted: none may take unbounded time or end the program.
TEST(Verify, PatternsThatAreNone) {
  Model model = make_model(kCt, bf16_scaled("fp8-channel"));
  model.words().set("ignore",
                    Json::array({"lm_head", "model.layers.0.mlp.router", "re:(?<=x)", "re:[z-a]",
                                 "re:(a*)*b", std::string(100'000, '('), 7, Json()}));
  EXPECT_EQ(verdict(model),
            "ignore-list:sglang ignore-list:transformers ignore-list:trtllm ignore-list:vllm");
  for (const Finding& finding : findings_of(model))
    EXPECT_EQ(finding.severity, Severity::warning) << finding.message;
  model.words().set("ignore", Json::array({"re:.*(?<!_proj)"}));  // lookbehind
  for (const Finding& finding : findings_of(model)) {
    EXPECT_EQ(finding.severity, Severity::warning);
    EXPECT_NE(finding.message.find("not checked"), std::string::npos) << finding.message;
  }
}

// As published checkpoints have it: everything but what the expression names.
TEST(Verify, AnIgnoreListWithALookahead) {
  Model model = make_model(kCt, bf16_scaled("fp8-channel"));
  model.words().set("ignore", Json::array({"re:^(?!.*(?:q|k|v|o|gate|up|down)_proj$).*$"}));
  EXPECT_EQ(verdict(model), "");
  model.words().set("ignore", Json::array({"re:^(?!.*(?:_proj|router)$).*$"}));
  EXPECT_NE(verdict(model), "");
  for (const Finding& finding : findings_of(model)) EXPECT_EQ(finding.severity, Severity::error);
}

TEST(Verify, RulesHaveNamesOfTheirOwn) {
  std::set<std::string_view> ids;
  for (const VerifyRule& rule : verify_rules()) EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
  EXPECT_EQ(parse_loader("trtllm"), Loader::trtllm);
  EXPECT_THROW((void)parse_loader("ollama"), Error);
}

}  // namespace
}  // namespace octavo
