#include "octavo/pipeline/convert_checkpoint.h"

#include <array>
#include <cstring>
#include <iterator>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_testing_internal.h"

namespace octavo {
namespace {

constexpr std::array kDialects{Dialect::compressed_tensors, Dialect::deepseek, Dialect::modelopt,
                               Dialect::comfyui, Dialect::octavo};

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Matrices of several sizes; ragged ones where the dialect supports them.
std::vector<TestWeight> weights_for(Dialect dialect, Dialect other, const Scaling& scaling) {
  std::vector<TestWeight> weights;
  for (const Shape& shape : {Shape{256, 384}, Shape{128, 128}, Shape{300, 96}, Shape{40, 33}}) {
    const std::string name = text("model.layers.", weights.size(), ".mlp.down_proj.weight");
    const QuantizedWeight weight{.name = name,
                                 .module = name.substr(0, name.size() - 7),
                                 .shape = shape,
                                 .source = DType::bf16,
                                 .scaling = scaling};
    if (why_not(dialect, weight).empty() && why_not(other, weight).empty())
      weights.push_back(make_weight(dialect, name, shape, scaling, 1000, weights.size() + 1));
  }
  return weights;
}

TEST(ConvertCheckpoint, ThereAndBackGivesTheSameBytes) {
  int pairs = 0;
  for (const std::string& name : preset_names())
    for (const Dialect from : kDialects)
      for (const Dialect to : kDialects) {
        if (to <= from) continue;  // the round trip covers the reverse direction
        const std::vector<TestWeight> weights = weights_for(from, to, preset(name));
        if (weights.empty()) continue;
        SCOPED_TRACE(text(name, ": ", name_of(from), " to ", name_of(to)));
        const TemporaryFolder folder;
        write_checkpoint(folder, from, weights);
        const TemporaryFolder results;
        const ConvertCheckpointResult there =
            convert_checkpoint(folder.path(), results.path("there"), to, {.threads = 2});
        EXPECT_EQ(there.from, from);
        EXPECT_EQ(there.weights, static_cast<std::int64_t>(weights.size()));
        EXPECT_EQ(recognize(CheckpointReader(results.path("there"))).dialect, to);
        (void)convert_checkpoint(results.path("there"), results.path("back"), from);
        EXPECT_EQ(content(results.path("back/model.safetensors")),
                  content(folder.path("model.safetensors")));
        if (from != Dialect::comfyui && to != Dialect::comfyui) {
          const CheckpointReader before(folder.path()), after(results.path("back"));
          EXPECT_EQ(after.config()["quantization_config"], before.config()["quantization_config"]);
          EXPECT_EQ(after.hf_quant_config(), before.hf_quant_config());
        }
        ++pairs;
      }
  EXPECT_GT(pairs, 20);
}

TEST(ConvertCheckpoint, WhatATargetCannotHoldIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  write_checkpoint(
      folder, Dialect::compressed_tensors,
      weights_for(Dialect::compressed_tensors, Dialect::octavo, preset("fp8-channel")));
  try {
    (void)convert_checkpoint(folder.path(), folder.path("out"), Dialect::deepseek);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string_view(error.what()).find("down_proj"), std::string_view::npos);
    EXPECT_NE(std::string_view(error.what()).find("fp8-channel"), std::string_view::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
}

TEST(ConvertCheckpoint, DequantizingIsDequantize) {
  for (const Dialect dialect : kDialects)
    for (const std::string_view name : {"nvfp4", "mxfp8", "fp8"})
      for (const DType dtype : {DType::bf16, DType::f32}) {
        const std::vector<TestWeight> weights = weights_for(dialect, dialect, preset(name));
        if (weights.empty()) continue;
        SCOPED_TRACE(text(name_of(dialect), " ", name));
        const TemporaryFolder folder, results;
        write_checkpoint(folder, dialect, weights);
        const ConvertCheckpointResult result =
            dequantize_checkpoint(folder.path(), results.path("out"), dtype);
        EXPECT_GT(result.bytes_after, result.bytes_before);
        const CheckpointReader out(results.path("out"));
        EXPECT_TRUE(out.config()["quantization_config"].is_null());
        EXPECT_FALSE(recognize(out).quantized);
        EXPECT_NE(out.find("model.norm.weight"), nullptr);
        for (const TestWeight& weight : weights) {
          const StoredTensor& stored = out.at(weight.weight.name);
          std::vector<std::byte> got(stored.nbytes()), wanted;
          out.read(stored, 0, got);
          for (const QuantizedTensor& row_block : weight.row_blocks) {
            const Tensor values = dequantize(row_block, dtype);
            wanted.insert(wanted.end(), values.bytes().begin(), values.bytes().end());
          }
          EXPECT_EQ(got, wanted);
        }
      }
}

TEST(ConvertCheckpoint, AStoppedConversionGoesOn) {
  const TemporaryFolder folder, results;
  write_checkpoint(folder, Dialect::compressed_tensors,
                   weights_for(Dialect::compressed_tensors, Dialect::modelopt, preset("nvfp4")));
  (void)convert_checkpoint(folder.path(), results.path("whole"), Dialect::modelopt);
  EXPECT_THROW((void)convert_checkpoint(folder.path(), results.path("out"), Dialect::modelopt,
                                        {.on_progress = [](const Progress&) { return false; }}),
               Error);
  EXPECT_FALSE(std::filesystem::exists(results.path("out/config.json")));
  (void)convert_checkpoint(folder.path(), results.path("out"), Dialect::modelopt, {.resume = true});
  EXPECT_EQ(content(results.path("out/model.safetensors")),
            content(results.path("whole/model.safetensors")));
  EXPECT_EQ(content(results.path("out/config.json")), content(results.path("whole/config.json")));
}

TEST(ConvertCheckpoint, WhatCannotBeConverted) {
  const TemporaryFolder folder;
  safetensors::FileWriter writer(folder.path("model.safetensors"),
                                 {{"a.weight", safetensors::StoredType::bf16, {1, 2}}});
  writer.write(writer.at("a.weight"), 0, std::vector<std::byte>(4));
  writer.finish();
  EXPECT_THROW((void)convert_checkpoint(folder.path(), folder.path("out"), Dialect::octavo), Error);
  EXPECT_THROW((void)dequantize_checkpoint(folder.path(), folder.path("out"), DType::bf16), Error);
  EXPECT_THROW((void)dequantize_checkpoint(folder.path(), folder.path("out"), DType::f64), Error);
  EXPECT_THROW((void)convert_checkpoint(folder.path("none"), folder.path("out"), Dialect::octavo),
               Error);
}

// 448 * 256 is beyond f16, which ends at 65504.
TEST(ConvertCheckpoint, WhatATypeCannotHoldIsAnErrorOrItsLargestValue) {
  const TemporaryFolder folder, results;
  safetensors::FileWriter writer(folder.path("model.safetensors"),
                                 {{"l.0.up_proj.weight", safetensors::StoredType::f8_e4m3, {2, 3}},
                                  {"l.0.up_proj.weight_scale", safetensors::StoredType::f32, {1}}});
  const std::array<unsigned char, 6> codes{0x38, 0x7E, 0xFE, 0x38, 0xB8, 0x00};  // 1 448 -448 ...
  const float scale = 256;
  writer.write(writer.at("l.0.up_proj.weight"), 0, std::as_bytes(std::span(codes)));
  writer.write(writer.at("l.0.up_proj.weight_scale"), 0,
               std::as_bytes(std::span<const float>(&scale, 1)));
  writer.finish();
  folder.save("config.json",
              R"({"torch_dtype": "bfloat16", "text_config": {"dtype": "bfloat16"}})");
  std::string message;
  try {
    (void)dequantize_checkpoint(folder.path(), results.path("f16"), DType::f16);
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_TRUE(
      message.starts_with("[dequantize] tensor 'l.0.up_proj.weight' has a value in row 0, "
                          "column 1 that is larger than float16"))
      << message;
  EXPECT_FALSE(std::filesystem::exists(results.path("f16")));
  (void)dequantize_checkpoint(folder.path(), results.path("f16"), DType::f16,
                              {.clamp_non_finite = true});
  const CheckpointReader clamped(results.path("f16"));
  std::array<std::uint16_t, 6> bits{};
  clamped.read(clamped.at("l.0.up_proj.weight"), 0, std::as_writable_bytes(std::span(bits)));
  EXPECT_EQ(bits, (std::array<std::uint16_t, 6>{0x5C00, 0x7BFF, 0xFBFF, 0x5C00, 0xDC00, 0}));
  EXPECT_EQ(clamped.config()["torch_dtype"].string_or(""), "float16");
  EXPECT_EQ(clamped.config()["text_config"]["dtype"].string_or(""), "float16");
  (void)dequantize_checkpoint(folder.path(), results.path("bf16"), DType::bf16);
  EXPECT_EQ(CheckpointReader(results.path("bf16")).config()["torch_dtype"].string_or(""),
            "bfloat16");
}

// Messages of pipeline parts shared with quantize have the name of the call that was made.
TEST(ConvertCheckpoint, MessagesAreOfTheCall) {
  const TemporaryFolder folder;
  write_checkpoint(folder, Dialect::compressed_tensors,
                   {make_weight(Dialect::compressed_tensors, "l.0.up_proj.weight", {64, 64},
                                preset("mxfp8"), 1000)});
  const auto tag = [&](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what()).substr(0, std::string(error.what()).find(' '));
    }
    return std::string();
  };
  EXPECT_EQ(tag([&] { (void)convert_checkpoint(folder.path(), folder.path(), Dialect::octavo); }),
            "[convert]");
  EXPECT_EQ(tag([&] { (void)dequantize_checkpoint(folder.path(), folder.path(), DType::f32); }),
            "[dequantize]");
}

// quantization_config is read from four places of config.json, and the old one stays in none of
// them.
TEST(ConvertCheckpoint, OldConfigKeysAreRemovedWhereverTheyWereRead) {
  const TemporaryFolder folder, results;
  write_checkpoint(folder, Dialect::compressed_tensors,
                   weights_for(Dialect::compressed_tensors, Dialect::modelopt, preset("nvfp4")));
  const Json config = CheckpointReader(folder.path()).config();
  const Json words = config["quantization_config"];
  for (const char* const key : {"quantization_config", "compression_config"})
    for (const bool inner : {false, true}) {
      SCOPED_TRACE(text(inner ? "text_config." : "", key));
      Json moved = config, text_config = Json::object({{"hidden_size", 64}});
      moved.remove("quantization_config");
      (inner ? text_config : moved).set(key, words);
      moved.set("text_config", text_config);
      folder.save("config.json", moved.dump());
      const std::string name = text(key, inner);
      (void)dequantize_checkpoint(folder.path(), results.path(name + "-plain"), DType::bf16);
      (void)convert_checkpoint(folder.path(), results.path(name + "-mo"), Dialect::modelopt);
      const CheckpointReader plain(results.path(name + "-plain")), mo(results.path(name + "-mo"));
      EXPECT_EQ(plain.config()["text_config"], Json::object({{"hidden_size", 64}}));
      EXPECT_EQ(mo.config()["text_config"], Json::object({{"hidden_size", 64}}));
      EXPECT_TRUE(plain.config()["quantization_config"].is_null());
      EXPECT_TRUE(plain.config()["compression_config"].is_null());
      EXPECT_TRUE(mo.config()["compression_config"].is_null());
      EXPECT_EQ(mo.config()["quantization_config"]["quant_method"].string_or(""), "modelopt");
    }
}

TEST(ConvertCheckpoint, TwoTensorsOfOneNameAreReportedByTheCommandThatMakesThem) {
  const TemporaryFolder folder, results;
  write_checkpoint(folder, Dialect::compressed_tensors,
                   {make_weight(Dialect::compressed_tensors, "l.0.up_proj.weight", {64, 64},
                                preset("nvfp4"), 1000)});
  // NVFP4's codes are 'weight_packed' in compressed-tensors and 'weight' in modelopt.
  const CheckpointReader reader(folder.path());
  std::vector<safetensors::TensorPlan> plans;
  for (const StoredTensor& tensor : reader.tensors())
    plans.push_back({tensor.name(), tensor.entry->type, tensor.entry->shape});
  plans.push_back({"l.0.up_proj.weight_scale_2", safetensors::StoredType::f32, {1}});
  {
    safetensors::FileWriter writer(results.path("model.safetensors"), plans);
    for (const StoredTensor& tensor : reader.tensors()) {
      std::vector<std::byte> bytes(tensor.nbytes());
      reader.read(tensor, 0, bytes);
      writer.write(writer.at(tensor.name()), 0, bytes);
    }
    writer.write(writer.at("l.0.up_proj.weight_scale_2"), 0, std::vector<std::byte>(4));
    writer.finish();
  }
  results.save("config.json", reader.config().dump());
  try {
    (void)convert_checkpoint(results.path(), results.path("out"), Dialect::modelopt);
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("[convert] two tensors")) << message;
    EXPECT_EQ(message.find("exclude"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace octavo
