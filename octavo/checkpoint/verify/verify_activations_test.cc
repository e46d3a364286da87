// Static scales: which of them a dialect needs, and their values.
#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;

Stored number(float value, StoredType type = StoredType::f32) {
  Stored out{type, {1}, std::string(4, '\0')};
  std::memcpy(out.bytes.data(), &value, sizeof value);
  return out;
}

void add_inputs(Model& model, std::string_view suffix, const Stored& stored) {
  for (const Piece& piece : kPieces) model.tensors[text(piece.module, suffix)] = stored;
}

const Json kStatic =
    Json::object({{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}});

Model static_fp8(const Stored& scale) {
  Model model = make_model(kCt, preset("fp8"));
  model.group().set("input_activations", kStatic);
  add_inputs(model, ".input_scale", scale);
  return model;
}

Model static_nvfp4(Dialect dialect, const Stored& scale) {
  Model model = make_model(dialect, preset("nvfp4"));
  if (dialect == kMo) {
    model.words().set("quant_algo", "NVFP4");
    const_cast<Json&>(model.hf_quant["quantization"]).set("quant_algo", "NVFP4");
    add_inputs(model, ".input_scale", scale);
    return model;
  }
  Json activations = model.group()["weights"];
  activations.set("dynamic", "local");
  model.group().set("input_activations", std::move(activations));
  add_inputs(model, ".input_global_scale", scale);
  return model;
}

Model cached(const Stored& scale) {
  Model model = make_model(kCt, bf16_scaled("fp8-channel"));
  model.words().set("kv_cache_scheme", kStatic);
  for (const char* const name : {"k_scale", "v_scale"})
    model.tensors[text("model.layers.0.self_attn.", name)] = scale;
  return model;
}

// Findings of one loader that a change of scales adds to those of correct scales.
template <typename Make>
std::string added(Make&& make, const Stored& scale) {
  const VerifyOptions options{.loaders = {Loader::vllm}};
  const std::set<std::string> before = kinds(findings_of(make(number(0.5F)), options));
  std::set<std::string> out;
  for (const std::string& kind : kinds(findings_of(make(scale), options)))
    if (!before.contains(kind)) out.insert(kind);
  return joined(out);
}

template <typename Make>
void expect_all_faults(Make&& make) {
  EXPECT_EQ(added(make, number(0.0F)), "scale-numbers:vllm");
  EXPECT_EQ(added(make, number(-1.0F)), "scale-numbers:vllm");
  // Another rule reports those, for all unquantized tensors.
  EXPECT_EQ(added(make, number(std::numeric_limits<float>::infinity())), "values:vllm");
  EXPECT_EQ(added(make, {StoredType::u8, {1}, std::string(1, '\x01')}), "scale-types:vllm");
  EXPECT_EQ(added(make, {StoredType::f32, {3}, std::string(12, '\x3C')}), "scale-shapes:vllm");
  EXPECT_EQ(added(make, {StoredType::f32, {0}, ""}), "scale-shapes:vllm");
  for (const Stored& good : {Stored{StoredType::f32, {}, number(0.25F).bytes},
                             Stored{StoredType::bf16, {1}, std::string("\x80\x3E", 2)},
                             Stored{StoredType::f16, {1, 1}, std::string("\x00\x34", 2)}})
    EXPECT_EQ(added(make, good), "");
}

TEST(VerifyActivations, StaticScalesAreSinglePositiveNumbers) {
  expect_all_faults(static_fp8);
  expect_all_faults([](const Stored& scale) { return static_nvfp4(kCt, scale); });
  expect_all_faults([](const Stored& scale) { return static_nvfp4(kMo, scale); });
  expect_all_faults(cached);
  // Each of them is named in a finding.
  std::set<std::string> named;
  for (const Finding& one : findings_of(static_fp8(number(0.0F)))) {
    if (one.rule != "scale-numbers") continue;
    EXPECT_EQ(one.severity, Severity::error);
    named.insert(one.tensor);
  }
  EXPECT_EQ(named.size(), kPieces.size());
}

TEST(VerifyActivations, TheKvCacheAloneIsCheckedToo) {
  const auto plain = [](const Stored& scale) {
    Model model = cached(scale);
    std::erase_if(model.tensors,
                  [](const auto& one) { return one.first.find("_proj.") != std::string::npos; });
    model.words().set("config_groups", Json::object());
    return model;
  };
  expect_all_faults(plain);
}

// Scales that no loader reads, and KV caches with one scale per head.
TEST(VerifyActivations, WhatIsNotUsedIsNotJudged) {
  Model dynamic = make_model(kCt, bf16_scaled("fp8-channel"));
  add_inputs(dynamic, ".input_scale", number(0.0F));
  EXPECT_EQ(verdict(dynamic), "");
  Model no_cache = make_model(kCt, bf16_scaled("fp8-channel"));
  no_cache.tensors["model.layers.0.self_attn.k_scale"] = number(0.0F);
  EXPECT_EQ(verdict(no_cache), "");
  const Stored heads{StoredType::f32, {2, 1, 1}, std::string(8, '\x3C')};
  Model by_head = cached(heads);
  Json scheme = kStatic;
  scheme.set("strategy", "attn_head");
  by_head.words().set("kv_cache_scheme", scheme);
  EXPECT_EQ(verdict(by_head), "");
}

TEST(VerifyActivations, ModeloptsNvfp4HasScalesOfActivations) {
  const auto lacking = [](const Model& model) {
    std::string out;
    for (const Finding& one : findings_of(model)) {
      if (one.rule != "activation-scales") continue;
      EXPECT_EQ(one.severity, Severity::error);
      out += text(one.loader, ":", one.tensor, " ");
    }
    return out;
  };
  Model model = static_nvfp4(kMo, number(0.5F));
  EXPECT_EQ(lacking(model), "");
  model.tensors.erase(kQ + ".input_scale");
  const std::string wanted = text("vllm:", kQ, " sglang:", kQ, " trtllm:", kQ, " ");
  EXPECT_EQ(lacking(model), wanted);
  // Declared in either file, in lower case, and for one layer.
  Model side = model;
  side.config.remove("quantization_config");
  EXPECT_EQ(lacking(side), wanted);
  model.words().set("quant_algo", "nvfp4");
  EXPECT_EQ(lacking(model), wanted);
  Model layer = make_model(kMo, preset("nvfp4"));
  EXPECT_EQ(lacking(layer), "");  // W4A16_NVFP4
  layer.words().set(
      "quantized_layers",
      Json::object({{kQ, Json::object({{"quant_algo", "NVFP4"}, {"group_size", 16}})}}));
  EXPECT_EQ(lacking(layer), wanted);
  const_cast<Json&>(layer.hf_quant["quantization"])
      .set("quantized_layers", layer.words()["quantized_layers"]);
  layer.words().remove("quantized_layers");
  layer.words().set("quant_algo", "MIXED_PRECISION");
  EXPECT_EQ(lacking(layer), wanted);
}

}  // namespace
}  // namespace octavo
