// Static scales of activations and of the KV cache: which of them a conversion keeps, under which
// names, and its notes on the others.
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/checkpoint/dialect/dialect_testing_internal.h"
#include "octavo/checkpoint/verify/verify.h"
#include "octavo/pipeline/convert_checkpoint.h"

namespace octavo {
namespace {

using safetensors::StoredType;

// Scalars by name; a bf16 one is given as its bits.
struct Number {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::uint64_t> shape{1};
  float value = 0;
};

constexpr const char* kModule = "model.layers.0.self_attn.o_proj";

// A checkpoint of one weight, with static scales beside it.
void write_with(const TemporaryFolder& folder, Dialect dialect, const Scaling& scaling,
                const std::vector<Number>& numbers, const std::function<void(Json&)>& change) {
  const TemporaryFolder plain;
  write_checkpoint(plain, dialect,
                   {make_weight(dialect, text(kModule, ".weight"), {128, 256}, scaling, 1000)});
  const CheckpointReader reader(plain.path());
  std::vector<TestTensor> tensors;
  for (const StoredTensor& stored : reader.tensors()) {
    TestTensor tensor{{stored.name(), stored.entry->type, stored.entry->shape}, {}};
    tensor.bytes.resize(stored.nbytes());
    reader.read(stored, 0, tensor.bytes);
    tensors.push_back(std::move(tensor));
  }
  for (const Number& number : numbers) {
    TestTensor tensor{{number.name, number.type, number.shape}, {}};
    const auto bits = std::bit_cast<std::uint32_t>(number.value);
    const std::uint32_t stored = number.type == StoredType::bf16 ? bits >> 16 : bits;
    std::size_t count = 1;
    for (const std::uint64_t size : number.shape) count *= size;
    const std::size_t each = number.type == StoredType::bf16 ? 2 : 4;
    tensor.bytes.resize(count * each);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(tensor.bytes.data() + i * each, &stored, each);
    tensors.push_back(std::move(tensor));
  }
  write_tensors(folder.path("model.safetensors"), tensors);
  Json config = reader.config();
  Json words = config["quantization_config"];
  change(words);
  config.set("quantization_config", std::move(words));
  folder.save("config.json", config.dump());
  if (!reader.hf_quant_config().is_null())
    folder.save("hf_quant_config.json", reader.hf_quant_config().dump());
}

void say_static(Json& words, const Json& activations) {
  Json group = words["config_groups"]["group_0"];
  group.set("input_activations", activations);
  words.set("config_groups", Json::object({{"group_0", std::move(group)}}));
}
const Json kStaticFp8 = Json::object({{"num_bits", 8},
                                      {"type", "float"},
                                      {"symmetric", true},
                                      {"strategy", "tensor"},
                                      {"dynamic", false}});
const Json kLocalFp4 = Json::object({{"num_bits", 4},
                                     {"type", "float"},
                                     {"symmetric", true},
                                     {"strategy", "tensor_group"},
                                     {"dynamic", "local"},
                                     {"group_size", 16},
                                     {"scale_dtype", "torch.float8_e4m3fn"}});

float number_of(const CheckpointReader& checkpoint, const std::string& name,
                const std::vector<std::uint64_t>& shape) {
  const StoredTensor* const stored = checkpoint.find(name);
  if (stored == nullptr) {
    ADD_FAILURE() << "there is no " << name;
    return 0;
  }
  EXPECT_EQ(stored->entry->type, StoredType::f32) << name;
  EXPECT_EQ(stored->entry->shape, shape) << name;
  float value = 0;
  checkpoint.read(*stored, 0, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

std::string all_of(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

TEST(ConvertStatic, Fp8KeepsItsActivationsAndItsCache) {
  const TemporaryFolder folder, results;
  write_with(folder, Dialect::compressed_tensors, preset("fp8"),
             {{text(kModule, ".input_scale"), StoredType::bf16, {1}, 0.0234375F},
              {"model.layers.0.self_attn.k_scale", StoredType::bf16, {1}, 0.5F},
              {"model.layers.0.self_attn.v_scale", StoredType::f32, {1}, 0.3F}},
             [](Json& words) {
               say_static(words, kStaticFp8);
               words.set("kv_cache_scheme", kStaticFp8);
             });
  const ConvertCheckpointResult there =
      convert_checkpoint(folder.path(), results.path("mo"), Dialect::modelopt);
  EXPECT_EQ(all_of(there.notes), "");
  const CheckpointReader mo(results.path("mo"));
  EXPECT_EQ(number_of(mo, text(kModule, ".input_scale"), {}), 0.0234375F);
  EXPECT_EQ(number_of(mo, "model.layers.0.self_attn.k_proj.k_scale", {}), 0.5F);
  EXPECT_EQ(number_of(mo, "model.layers.0.self_attn.v_proj.v_scale", {}), 0.3F);
  EXPECT_EQ(mo.find("model.layers.0.self_attn.k_scale"), nullptr);
  const Json fp8 = Json::object({{"dynamic", false}, {"num_bits", 8}, {"type", "float"}});
  const Json& words = mo.config()["quantization_config"];
  EXPECT_EQ(words["kv_cache_scheme"], fp8);
  EXPECT_EQ(words["config_groups"]["group_0"]["input_activations"], fp8);
  EXPECT_EQ(mo.hf_quant_config()["quantization"]["kv_cache_quant_algo"].string_or(""), "FP8");
  // vLLM and SGLang need input_scale for ModelOpt's FP8; a conversion without it fails verify.
  for (const Finding& finding : verify(mo))
    EXPECT_TRUE(finding.rule != "activation-scales" && !has(finding.message, "kv_cache"))
        << finding.rule << ": " << finding.message;

  for (const Dialect by : {Dialect::modelopt, Dialect::octavo}) {
    SCOPED_TRACE(name_of(by));
    const std::string way = text("by-", name_of(by)), back = text("from-", name_of(by));
    (void)convert_checkpoint(folder.path(), results.path(way), by);
    EXPECT_EQ(all_of(convert_checkpoint(results.path(way), results.path(back),
                                        Dialect::compressed_tensors)
                         .notes),
              "");
    const CheckpointReader again(results.path(back)), first(folder.path());
    EXPECT_EQ(number_of(again, text(kModule, ".input_scale"), {1}), 0.0234375F);
    EXPECT_EQ(number_of(again, "model.layers.0.self_attn.k_scale", {1}), 0.5F);
    EXPECT_EQ(number_of(again, "model.layers.0.self_attn.v_scale", {1}), 0.3F);
    EXPECT_EQ(again.config()["quantization_config"], first.config()["quantization_config"]);
  }
}

// The scale is a divisor on one side and a multiplier on the other. 2688 / 10.5 = 256 is a power of
// two, and so exact both ways; 2688 / 5.625 and 5.625 / 2688 are both what their own writer would
// store.
TEST(ConvertStatic, Nvfp4StoresTheInputScaleAsItsReciprocal) {
  for (const float amax : {10.5F, 5.625F}) {
    const TemporaryFolder folder, results;
    const auto divisor = static_cast<float>(2688.0 / static_cast<double>(amax)),
               multiplier = static_cast<float>(static_cast<double>(amax) / 2688.0);
    write_with(folder, Dialect::compressed_tensors, preset("nvfp4"),
               {{text(kModule, ".input_global_scale"), StoredType::f32, {1}, divisor}},
               [](Json& words) { say_static(words, kLocalFp4); });
    (void)convert_checkpoint(folder.path(), results.path("mo"), Dialect::modelopt);
    const CheckpointReader mo(results.path("mo"));
    EXPECT_EQ(number_of(mo, text(kModule, ".input_scale"), {}), multiplier);
    EXPECT_EQ(mo.config()["quantization_config"]["quant_algo"].string_or(""), "NVFP4");
    EXPECT_EQ(mo.hf_quant_config()["quantization"]["quant_algo"].string_or(""), "NVFP4");
    (void)convert_checkpoint(results.path("mo"), results.path("ct"), Dialect::compressed_tensors);
    const CheckpointReader ct(results.path("ct")), first(folder.path());
    EXPECT_EQ(number_of(ct, text(kModule, ".input_global_scale"), {1}), divisor);
    EXPECT_EQ(ct.config()["quantization_config"], first.config()["quantization_config"]);
    (void)convert_checkpoint(folder.path(), results.path("ui"), Dialect::comfyui);
    EXPECT_EQ(number_of(CheckpointReader(results.path("ui")), text(kModule, ".input_scale"), {}),
              multiplier);
  }
}

TEST(ConvertStatic, WhatTheTargetCannotHoldIsDroppedAndNoted) {
  const auto fp8_cache = [](Json& words) { words.set("kv_cache_scheme", kStaticFp8); };
  const TemporaryFolder folder, results;
  write_with(folder, Dialect::compressed_tensors, preset("fp8-block"),
             {{text(kModule, ".input_scale"), StoredType::f32, {1}, 0.5F},
              {"model.layers.0.self_attn.k_scale", StoredType::f32, {1}, 0.5F}},
             [&](Json& words) {
               say_static(words, kStaticFp8);
               fp8_cache(words);
             });
  const ConvertCheckpointResult result =
      convert_checkpoint(folder.path(), results.path("ds"), Dialect::deepseek);
  EXPECT_TRUE(has(all_of(result.notes), "1 activation scale is dropped"));
  EXPECT_TRUE(has(all_of(result.notes), "KV cache quantization is no longer declared"));
  const CheckpointReader out(results.path("ds"));
  EXPECT_EQ(out.find(text(kModule, ".input_scale")), nullptr);
  EXPECT_NE(out.find("model.layers.0.self_attn.k_scale"), nullptr);  // as vLLM looks for it
  const ConvertCheckpointResult plain =
      dequantize_checkpoint(folder.path(), results.path("plain"), DType::bf16);
  EXPECT_TRUE(has(all_of(plain.notes), "is dropped"));
  EXPECT_TRUE(CheckpointReader(results.path("plain")).config()["quantization_config"].is_null());

  // Declared as dynamic: no loader uses the scales.
  const TemporaryFolder dynamic;
  write_with(dynamic, Dialect::compressed_tensors, preset("fp8"),
             {{text(kModule, ".input_scale"), StoredType::f32, {1}, 0.5F}}, [](Json&) {});
  EXPECT_TRUE(
      has(all_of(convert_checkpoint(dynamic.path(), results.path("dy"), Dialect::modelopt).notes),
          "is dropped"));
  // A KV cache scheme that the target does not support, and per-head scales.
  const TemporaryFolder heads;
  write_with(heads, Dialect::compressed_tensors, preset("fp8"), {}, [&](Json& words) {
    Json by_head = kStaticFp8;
    by_head.set("strategy", "attn_head");
    words.set("kv_cache_scheme", by_head);
  });
  EXPECT_TRUE(
      has(all_of(convert_checkpoint(heads.path(), results.path("he"), Dialect::modelopt).notes),
          "no longer declared"));
}

// ModelOpt's newer exports declare everything in config.json.
TEST(ConvertStatic, ACacheThatConfigJsonAloneSpeaksOf) {
  for (const char* const algorithm : {"FP8", "fp8"}) {
    const TemporaryFolder folder, results;
    write_with(folder, Dialect::modelopt, preset("nvfp4"),
               {{"model.layers.0.self_attn.k_proj.k_scale", StoredType::f32, {}, 0.5F}},
               [&](Json& words) { words.set("kv_cache_quant_algo", algorithm); });
    std::filesystem::remove(folder.path("hf_quant_config.json"));
    const ConvertCheckpointResult result =
        convert_checkpoint(folder.path(), results.path("ct"), Dialect::compressed_tensors);
    EXPECT_EQ(all_of(result.notes), "");
    const CheckpointReader ct(results.path("ct"));
    EXPECT_TRUE(ct.config()["quantization_config"]["kv_cache_scheme"].is_object());
    EXPECT_EQ(number_of(ct, "model.layers.0.self_attn.k_scale", {1}), 0.5F);
  }
}

// ComfyUI's older layout has an empty marker tensor for the file; it is no scale.
TEST(ConvertStatic, AMarkerOfTheFileIsNoScaleThatIsLeftBehind) {
  const TemporaryFolder folder;
  const TestWeight weight =
      make_weight(Dialect::comfyui, text(kModule, ".weight"), {128, 256}, preset("fp8"), 1000);
  const auto scale = weight.row_blocks.front().rowwise.scales.span<float>();
  safetensors::FileWriter writer(folder.path("model.safetensors"),
                                 {{text(kModule, ".weight"), StoredType::f8_e4m3, {128, 256}},
                                  {text(kModule, ".scale_weight"), StoredType::f32, {}},
                                  {"scaled_fp8", StoredType::f8_e4m3, {0}}});
  writer.write(writer.at(text(kModule, ".weight")), 0,
               weight.row_blocks.front().rowwise.codes.bytes());
  writer.write(writer.at(text(kModule, ".scale_weight")), 0, std::as_bytes(scale));
  writer.finish();
  for (const Dialect target : {Dialect::compressed_tensors, Dialect::octavo}) {
    const std::string out = folder.path(text("to-", name_of(target)));
    EXPECT_EQ(all_of(convert_checkpoint(folder.path("model.safetensors"), out, target).notes), "");
    EXPECT_EQ(CheckpointReader(out).find("scaled_fp8"), nullptr);
  }
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Values that would be copied unchanged and are no valid scale.
TEST(ConvertStatic, NumbersThatAreNoScalesAreRefused) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::string input = text(kModule, ".input_scale"),
                    cache = "model.layers.0.self_attn.k_scale";
  const auto message = [](const Number& number) {
    const TemporaryFolder folder, results;
    write_with(folder, Dialect::compressed_tensors, preset("fp8"), {number}, [](Json& words) {
      say_static(words, kStaticFp8);
      words.set("kv_cache_scheme", kStaticFp8);
    });
    // Without a target they are not checked.
    (void)dequantize_checkpoint(folder.path(), results.path("plain"), DType::bf16);
    std::string out = refusal(
        [&] { (void)convert_checkpoint(folder.path(), results.path("out"), Dialect::modelopt); });
    EXPECT_FALSE(std::filesystem::exists(results.path("out")));
    return out;
  };
  for (const std::string& name : {input, cache}) {
    for (const float value : {0.0F, -1.0F, kInf, -kInf, std::nanf("")})
      EXPECT_TRUE(has(message({name, StoredType::f32, {1}, value}),
                      text("'", name, "' is declared as a static scale, and it is ")))
          << value;
    EXPECT_TRUE(has(message({name, StoredType::i32, {1}, 0.5F}), "it is I32; expected F32"));
    EXPECT_TRUE(has(message({name, StoredType::bf16, {1, 1, 2}, 0.5F}), "its shape is [1, 1, 2]"));
  }
}

}  // namespace
}  // namespace octavo
