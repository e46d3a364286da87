#include "octavo/checkpoint/dialect/dialect.h"

#include <bit>
#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_testing_internal.h"
#include "octavo/checkpoint/dialect/nvfp4_divisor_internal.h"

namespace octavo {
namespace {

// The tensors of a weight as "name TYPE [shape]", one a line.
std::string lines(Dialect dialect, const Shape& shape, const Scaling& scaling,
                  const std::string& name = "l.q.weight") {
  QuantizedWeight weight{.name = name,
                         .module = name.substr(0, name.rfind(".weight")),
                         .shape = shape,
                         .source = DType::bf16,
                         .scaling = scaling};
  std::string out;
  for (const DialectTensor& tensor : dialect_tensors(dialect, weight)) {
    out += text(tensor.plan.name, " ", stored_name(tensor.plan.type), " [");
    for (std::size_t i = 0; i < tensor.plan.shape.size(); ++i)
      out += text(i > 0 ? "," : "", tensor.plan.shape[i]);
    out += tensor.constant.empty() ? "]\n" : text("] ", tensor.constant, "\n");
  }
  return out;
}

Json configured(Dialect dialect, const std::vector<std::pair<std::string, std::string>>& weights,
                std::vector<std::string> plain = {"lm_head", "model.layers.0.mlp.gate"},
                Json* hf_quant = nullptr) {
  QuantizedModel model;
  model.plain_modules = std::move(plain);
  for (const auto& [module, scaling] : weights)
    model.weights.push_back({.name = module + ".weight",
                             .module = module,
                             .shape = {256, 256},
                             .source = DType::bf16,
                             .scaling = preset(scaling)});
  Json config = Json::object({{"a", 1}}), side;
  configure(dialect, model, config, side);
  if (hf_quant != nullptr) *hf_quant = side;
  return config;
}

TEST(Dialect, Names) {
  EXPECT_EQ(dialect_names(), (std::vector<std::string>{"compressed-tensors", "deepseek", "modelopt",
                                                       "comfyui", "octavo", "gguf"}));
  for (const std::string& name : dialect_names()) EXPECT_EQ(name_of(parse_dialect(name)), name);
  EXPECT_THROW((void)parse_dialect("awq"), Error);
}

TEST(Dialect, CompressedTensorsTensors) {
  constexpr Dialect kCt = Dialect::compressed_tensors;
  EXPECT_EQ(lines(kCt, {256, 512}, preset("fp8")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale F32 [1]\n");
  EXPECT_EQ(lines(kCt, {256, 512}, preset("fp8-channel")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale F32 [256,1]\n");
  EXPECT_EQ(lines(kCt, {256, 512}, preset("int8-channel")),
            "l.q.weight I8 [256,512]\nl.q.weight_scale F32 [256,1]\n");
  EXPECT_EQ(lines(kCt, {256, 512}, preset("fp8-block")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale F32 [2,4]\n");
  EXPECT_EQ(lines(kCt, {256, 512}, preset("mxfp8")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale U8 [256,16]\n");
  EXPECT_EQ(lines(kCt, {256, 512}, preset("mxfp6")),
            "l.q.weight_packed U8 [256,384]\nl.q.weight_scale U8 [256,16]\n");
  EXPECT_EQ(lines(kCt, {256, 512}, preset("mxfp4")),
            "l.q.weight_packed U8 [256,256]\nl.q.weight_scale U8 [256,16]\n");
  EXPECT_EQ(lines(kCt, {256, 512}, preset("nvfp4")),
            "l.q.weight_packed U8 [256,256]\nl.q.weight_scale F8_E4M3 [256,32]\n"
            "l.q.weight_global_scale F32 [1]\n");
}

// weight_shape is [256, 512], as two little-endian int64.
TEST(Dialect, Int4OfCompressedTensors) {
  constexpr Dialect kCt = Dialect::compressed_tensors;
  Scaling scaling = preset("int4");
  const std::string shape("\x00\x01\0\0\0\0\0\0\x00\x02\0\0\0\0\0\0", 16);
  for (const std::int64_t group : {32, 64, 128}) {
    scaling.tile = {1, group};
    EXPECT_EQ(lines(kCt, {256, 512}, scaling),
              text("l.q.weight_packed I32 [256,64]\nl.q.weight_scale BF16 [256,", 512 / group,
                   "]\nl.q.weight_shape I64 [2] ", shape, "\n"));
  }
  scaling.tile = {1, 16};
  const QuantizedWeight other{.name = "l.q.weight",
                              .module = "l.q",
                              .shape = {256, 512},
                              .source = DType::bf16,
                              .scaling = scaling};
  EXPECT_NE(why_not(kCt, other).find("int4 (groups of 32, 64 or 128)"), std::string::npos);
}

TEST(Dialect, DeepseekTensors) {
  EXPECT_EQ(lines(Dialect::deepseek, {256, 512}, preset("fp8-block")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale_inv F32 [2,4]\n");
  EXPECT_EQ(lines(Dialect::deepseek, {256, 512}, preset("mxfp8")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale_inv U8 [256,16]\n");
  EXPECT_EQ(lines(Dialect::deepseek, {8, 256, 512}, preset("fp8-block"), "experts.gate_up_proj"),
            "experts.gate_up_proj F8_E4M3 [8,256,512]\n"
            "experts.gate_up_proj_scale_inv F32 [8,2,4]\n");
}

TEST(Dialect, ModeloptTensors) {
  constexpr Dialect kMo = Dialect::modelopt;
  EXPECT_EQ(lines(kMo, {256, 512}, preset("fp8")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale F32 []\n");
  EXPECT_EQ(lines(kMo, {256, 512}, preset("fp8-channel")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale F32 [256]\n");
  EXPECT_EQ(lines(kMo, {256, 512}, preset("fp8-block")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale F32 [2,1,4,1]\n");
  EXPECT_EQ(lines(kMo, {256, 512}, preset("mxfp8")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale U8 [256,16]\n");
  EXPECT_EQ(lines(kMo, {256, 512}, preset("nvfp4")),
            "l.q.weight U8 [256,256]\nl.q.weight_scale F8_E4M3 [256,32]\n"
            "l.q.weight_scale_2 F32 []\n");
}

TEST(Dialect, ComfyuiTensors) {
  constexpr Dialect kUi = Dialect::comfyui;
  EXPECT_EQ(lines(kUi, {20, 40}, preset("fp8:e5m2")),
            "l.q.weight F8_E5M2 [20,40]\nl.q.weight_scale F32 []\n"
            "l.q.comfy_quant U8 [25] {\"format\": \"float8_e5m2\"}\n");
  EXPECT_EQ(lines(kUi, {20, 40}, preset("nvfp4")),
            "l.q.weight U8 [32,24]\nl.q.weight_scale F8_E4M3 [128,4]\n"
            "l.q.weight_scale_2 F32 []\n"
            "l.q.comfy_quant U8 [43] {\"format\": \"nvfp4\", \"orig_shape\": [20, 40]}\n");
  EXPECT_EQ(lines(kUi, {256, 512}, preset("mxfp8")),
            "l.q.weight F8_E4M3 [256,512]\nl.q.weight_scale F8_E8M0 [256,16]\n"
            "l.q.comfy_quant U8 [19] {\"format\": \"mxfp8\"}\n");
}

// Element (0, 0) is in the high nibble, and scale (1, 0) follows 15 others of the swizzle.
TEST(Dialect, ComfyuiNibblesAndSwizzle) {
  const TestWeight weight =
      make_weight(Dialect::comfyui, "q.weight", {130, 64}, preset("nvfp4"), 2);
  const std::vector<RowBlockBytes> pieces =
      pack_row_block(Dialect::comfyui, weight.weight, 0, weight.row_blocks[0]);
  const std::span<const std::byte> codes = weight.row_blocks[0].rowwise.codes.bytes();
  const std::span<const std::byte> scales = weight.row_blocks[0].rowwise.scales.bytes();
  ASSERT_EQ(pieces[0].bytes.size(), 144U * 32);
  for (std::size_t i = 0; i < 130 * 32; ++i)
    ASSERT_EQ(pieces[0].bytes[i], codes[i] << 4 | codes[i] >> 4);
  for (std::size_t i = 130 * 32; i < 144 * 32; ++i) ASSERT_EQ(pieces[0].bytes[i], std::byte{0});
  ASSERT_EQ(pieces[1].bytes.size(), 256U * 4);
  for (std::size_t row = 0; row < 130; ++row)
    for (std::size_t col = 0; col < 4; ++col)
      ASSERT_EQ(pieces[1].bytes[row / 128 * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col],
                scales[row * 4 + col]);
}

TEST(Dialect, CompressedTensorsConfig) {
  const Json config = configured(Dialect::compressed_tensors, {{"a.q_proj", "fp8-block"}});
  EXPECT_EQ(config["a"].integer_or(0), 1);
  const Json& words = config["quantization_config"];
  EXPECT_EQ(words["quant_method"].string_or(""), "compressed-tensors");
  EXPECT_EQ(words["format"].string_or(""), "float-quantized");
  EXPECT_EQ(words["quantization_status"].string_or(""), "compressed");
  EXPECT_EQ(words["ignore"].dump(0), R"(["lm_head", "model.layers.0.mlp.gate"])");
  const Json& group = words["config_groups"]["group_0"];
  EXPECT_EQ(group["targets"].dump(0), R"(["Linear"])");
  EXPECT_EQ(group["weights"].dump(0),
            R"({"num_bits": 8, "type": "float", "symmetric": true, "strategy": "block", )"
            R"("dynamic": false, "block_structure": [128, 128]})");
  EXPECT_EQ(group["input_activations"].dump(0),
            R"({"num_bits": 8, "type": "float", "symmetric": true, "strategy": "group", )"
            R"("dynamic": true, "group_size": 128})");

  const Json nvfp4 = configured(Dialect::compressed_tensors, {{"a.q_proj", "nvfp4"}});
  const Json& fp4 = nvfp4["quantization_config"]["config_groups"]["group_0"];
  EXPECT_TRUE(fp4.has("input_activations"));
  EXPECT_TRUE(fp4["input_activations"].is_null());
  EXPECT_EQ(fp4["weights"]["scale_dtype"].string_or(""), "torch.float8_e4m3fn");
  EXPECT_EQ(fp4["weights"]["strategy"].string_or(""), "tensor_group");

  const Json mixed =
      configured(Dialect::compressed_tensors, {{"a.q_proj", "fp8-block"}, {"a.up_proj", "mxfp4"}});
  EXPECT_EQ(mixed["quantization_config"]["format"].string_or(""), "mixed-precision");
  EXPECT_EQ(mixed["quantization_config"]["config_groups"]["group_1"]["targets"].dump(0),
            R"(["a.up_proj"])");
}

TEST(Dialect, DeepseekConfig) {
  const Json config = configured(Dialect::deepseek, {{"a.q_proj", "fp8-block"}}, {"router"});
  EXPECT_EQ(config["quantization_config"].dump(0),
            R"({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", )"
            R"("weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "router"]})");
  Json powers = Json::object(), side;
  QuantizedWeight weight{.name = "a.weight",
                         .module = "a",
                         .shape = {128, 128},
                         .source = DType::bf16,
                         .scaling = preset("fp8-block")};
  weight.scaling.scale.rule = ScaleRule::rceil;
  configure(Dialect::deepseek, {{weight}, {}}, powers, side);
  EXPECT_EQ(powers["quantization_config"]["scale_fmt"].string_or(""), "ue8m0");
  EXPECT_EQ(configured(Dialect::deepseek, {{"a", "mxfp8"}})["quantization_config"]["quant_method"]
                .string_or(""),
            "mxfp8");
  EXPECT_THROW((void)configured(Dialect::deepseek, {{"a", "mxfp8"}, {"b", "fp8-block"}}), Error);
}

TEST(Dialect, ModeloptConfig) {
  Json side;
  const Json config = configured(Dialect::modelopt, {{"a.q_proj", "nvfp4"}}, {"lm_head"},
                                 &side)["quantization_config"];
  EXPECT_EQ(config["quant_method"].string_or(""), "modelopt");
  EXPECT_EQ(config["quant_algo"].string_or(""), "W4A16_NVFP4");
  EXPECT_EQ(side["quantization"].dump(0),
            R"({"quant_algo": "W4A16_NVFP4", "kv_cache_quant_algo": null, "group_size": 16, )"
            R"("exclude_modules": ["lm_head"]})");
  const Json mixed =
      configured(Dialect::modelopt, {{"a", "nvfp4"}, {"b", "fp8-channel"}}, {}, &side);
  EXPECT_EQ(mixed["quantization_config"]["quant_algo"].string_or(""), "MIXED_PRECISION");
  EXPECT_EQ(side["quantization"]["quantized_layers"]["b"]["quant_algo"].string_or(""),
            "FP8_PER_CHANNEL_PER_TOKEN");
}

TEST(Dialect, AQuantizedHeadIsNotOnTheIgnoreList) {
  const Json config = configured(Dialect::compressed_tensors, {{"lm_head", "fp8-channel"}}, {});
  const Json& words = config["quantization_config"];
  EXPECT_EQ(words["ignore"].dump(0), "[]");
  EXPECT_EQ(words["config_groups"]["group_0"]["targets"].dump(0), R"(["Linear", "lm_head"])");
}

// The second-level scale as divisor and back: exact where the amax has the few bits of bf16 or f16,
// and within an ulp where an f32 amax is not found.
TEST(Dialect, Divisors) {
  EXPECT_EQ(divisor_of(1.0F / 2688, DType::bf16), 2688.0F);
  EXPECT_EQ(multiplier_of(2688.0F, DType::bf16), 1.0F / 2688);
  // What llm-compressor stores for an amax of 0.1015625 (bf16): 2688 / amax.
  EXPECT_EQ(divisor_of(0.1015625F / 2688, DType::bf16), 2688 / 0.1015625F);
  int lost = 0;
  for (std::uint32_t bits = 0x0080; bits < 0x7F80; ++bits) {
    const auto amax = std::bit_cast<float>(bits << 16);
    const float scale = amax / 2688;
    if (scale < std::numeric_limits<float>::min()) continue;
    const float divisor = divisor_of(scale, DType::bf16);
    if (!std::isfinite(divisor) || divisor < std::numeric_limits<float>::min()) continue;
    ASSERT_EQ(divisor, 2688 / amax) << amax;
    if (multiplier_of(divisor, DType::bf16) != scale) ++lost;
  }
  EXPECT_EQ(lost, 0);
  std::uint32_t state = 1;
  for (int i = 0; i < 100'000; ++i) {
    state = state * 1664525 + 1013904223;
    const auto amax = std::bit_cast<float>(0x3C000000 + state % 0x08000000);
    const float scale = amax / 2688;
    const float back = multiplier_of(divisor_of(scale, DType::f32), DType::f32);
    ASSERT_LE(std::abs(back - scale), scale * 0x1p-22F) << amax;
  }
  EXPECT_TRUE(std::isnan(divisor_of(std::nanf(""), DType::bf16)));
  EXPECT_EQ(multiplier_of(divisor_of(0.0F, DType::bf16), DType::bf16), 0.0F);
}

}  // namespace
}  // namespace octavo
