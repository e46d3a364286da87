// Layouts that other tools write and octavo only reads, and files whose parts contradict each
// other.
#include <bit>
#include <cstring>
#include <map>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_testing_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;
using safetensors::TensorPlan;

struct Given {
  TensorPlan plan;
  std::string bytes;
};

std::string repeated(std::size_t count, std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += bytes;
  return out;
}

template <typename T>
std::string as_bytes(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

const std::string kOne = "\x38";          // 1.0 in e4m3fn
const std::string kTwo = as_bytes(2.0F);  // a scale
const std::string kTwoBf16 = as_bytes(std::uint16_t{0x4000});
const std::string kTwoE8m0 = as_bytes(std::uint8_t{128});

Given fp8(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
  return {{name, StoredType::f8_e4m3, {rows, cols}}, repeated(rows * cols, kOne)};
}
Given scale(const std::string& name, StoredType type, std::vector<std::uint64_t> shape,
            const std::string& one) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  return {{name, type, std::move(shape)}, repeated(count, one)};
}

void write(const TemporaryFolder& folder, const std::vector<Given>& tensors,
           std::string_view quantization_config = "", safetensors::Metadata metadata = {}) {
  std::vector<TensorPlan> plans;
  for (const Given& one : tensors) plans.push_back(one.plan);
  safetensors::FileWriter writer(folder.path("model.safetensors"), plans,
                                 {.metadata = std::move(metadata)});
  for (const Given& one : tensors) {
    if (!one.bytes.empty())
      writer.write(writer.at(one.plan.name), 0, std::as_bytes(std::span(one.bytes)));
  }
  writer.finish();
  if (!quantization_config.empty())
    folder.save("config.json", text(R"({"torch_dtype": "float16", "quantization_config": )",
                                    quantization_config, "}"));
}

// The only weight of the checkpoint, decoded.
struct Decoded {
  Dialect dialect;
  QuantizedWeight weight;
  std::vector<float> values;
};
Decoded decoded(const TemporaryFolder& folder) {
  const CheckpointReader checkpoint(folder.path());
  const Recognized found = recognize(checkpoint);
  EXPECT_EQ(found.weights.size(), 1U);
  const QuantizedWeight& weight = found.weights.at(0).weight;
  const std::int64_t rows = element_count(weight.shape) / weight.shape[weight.shape.rank() - 1];
  const Tensor values =
      dequantize(read_row_block(checkpoint, found.dialect, found.weights[0], 0, rows));
  return {found.dialect, weight, {values.span<float>().begin(), values.span<float>().end()}};
}

void expect_twos(const std::vector<Given>& tensors, std::string_view config, Dialect dialect,
                 const Tile& tile, const Shape& shape) {
  const TemporaryFolder folder;
  write(folder, tensors, config);
  const Decoded got = decoded(folder);
  EXPECT_EQ(got.dialect, dialect);
  EXPECT_EQ(got.weight.name, "q.weight");
  EXPECT_EQ(got.weight.module, "q");
  EXPECT_EQ(got.weight.shape, shape);
  EXPECT_EQ(got.weight.scaling.tile, tile);
  EXPECT_EQ(got.weight.source, config.empty() ? DType::bf16 : DType::f16);
  EXPECT_EQ(got.values, std::vector<float>(static_cast<std::size_t>(element_count(shape)), 2.0F));
}

constexpr std::string_view kCt = R"({"quant_method": "compressed-tensors"})";
constexpr std::string_view kFp8 = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
constexpr std::string_view kModelOpt = R"({"quant_method": "modelopt", "quant_algo": "FP8"})";

// Weights that need pre_quant_scale on the activations.
TEST(Recognize, ScalesOfActivationsWithinWeightsAreRefused) {
  const std::vector<Given> good{fp8("q.weight", 256, 384),
                                scale("q.weight_scale", StoredType::f32, {}, kTwo)};
  std::vector<Given> awq = good;
  awq.push_back(scale("q.pre_quant_scale", StoredType::bf16, {384}, kTwoBf16));
  for (const std::string_view config : {kModelOpt, kCt}) {
    const TemporaryFolder folder;
    write(folder, good, config);
    EXPECT_EQ(recognize(CheckpointReader(folder.path())).weights.size(), 1U);
    const TemporaryFolder other;
    write(other, awq, config);
    try {
      (void)recognize(CheckpointReader(other.path()));
      ADD_FAILURE() << "it was taken: " << config;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("'q.pre_quant_scale'"), std::string::npos);
    }
  }
}

TEST(Recognize, ScalesOfOtherTypesAndShapes) {
  const Given codes = fp8("q.weight", 256, 384);
  const auto with = [&](const std::string& name, StoredType type, std::vector<std::uint64_t> shape,
                        const std::string& one) {
    return std::vector<Given>{codes, scale(name, type, std::move(shape), one)};
  };
  const Shape shape{256, 384};
  constexpr Dialect kC = Dialect::compressed_tensors, kD = Dialect::deepseek,
                    kM = Dialect::modelopt;
  expect_twos(with("q.weight_scale", StoredType::bf16, {256, 1}, kTwoBf16), kCt, kC, {1, 0}, shape);
  expect_twos(with("q.weight_scale", StoredType::f32, {256}, kTwo), kCt, kC, {1, 0}, shape);
  expect_twos(with("q.weight_scale", StoredType::bf16, {1}, kTwoBf16), kCt, kC, {0, 0}, shape);
  expect_twos(with("q.weight_scale", StoredType::f32, {}, kTwo), kCt, kC, {0, 0}, shape);
  expect_twos(with("q.weight_scale", StoredType::bf16, {2, 3}, kTwoBf16), kCt, kC, {128, 128},
              shape);
  expect_twos(with("q.weight_scale", StoredType::f32, {256, 3}, kTwo), kCt, kC, {1, 128}, shape);
  expect_twos(with("q.weight_scale_inv", StoredType::bf16, {2, 3}, kTwoBf16), kFp8, kD, {128, 128},
              shape);
  expect_twos(with("q.weight_scale_inv", StoredType::f8_e8m0, {2, 3}, kTwoE8m0), kFp8, kD,
              {128, 128}, shape);
  expect_twos(with("q.scale", StoredType::f8_e8m0, {2, 3}, kTwoE8m0), kFp8, kD, {128, 128}, shape);
  expect_twos(with("q.weight_scale_inv", StoredType::f32, {}, kTwo), R"({"quant_method": "fp8"})",
              kD, {0, 0}, shape);
  expect_twos(with("q.weight_scale", StoredType::f32, {1}, kTwo), R"({"quant_method": "fp8"})", kD,
              {0, 0}, shape);
  expect_twos(with("q.weight_scale_inv", StoredType::u8, {256, 12}, kTwoE8m0),
              R"({"quant_method": "mxfp8"})", kD, {1, 32}, shape);
  expect_twos(with("q.weight_scale", StoredType::f32, {256, 1}, kTwo), kModelOpt, kM, {1, 0},
              shape);
  expect_twos(with("q.weight_scale", StoredType::f32, {2, 1, 3, 1}, kTwo),
              R"({"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"})", kM, {128, 128}, shape);
  // Ragged blocks, which some models have and octavo writes only in its own dialect.
  expect_twos(
      {fp8("q.weight", 200, 130), scale("q.weight_scale_inv", StoredType::f32, {2, 2}, kTwo)}, kFp8,
      kD, {128, 128}, {200, 130});
  // Blocks of another size.
  expect_twos({fp8("q.weight", 64, 96), scale("q.weight_scale_inv", StoredType::f32, {2, 3}, kTwo)},
              R"({"quant_method": "fp8", "weight_block_size": [32, 32]})", kD, {32, 32}, {64, 96});
}

TEST(Recognize, Int8WithAScaleForEachRow) {
  const TemporaryFolder folder;
  write(folder,
        {{{"q.weight", StoredType::i8, {2, 3}}, std::string("\x80\x00\x7F\x01\xFF\x02", 6)},
         scale("q.weight_scale", StoredType::bf16, {2, 1}, kTwoBf16)},
        R"({"quant_method": "compressed-tensors", "format": "int-quantized"})");
  const CheckpointReader checkpoint(folder.path());
  const Recognized found = recognize(checkpoint);
  ASSERT_EQ(found.weights.size(), 1U);
  EXPECT_EQ(found.weights[0].weight.scaling.format, int8);
  EXPECT_EQ(found.weights[0].weight.scaling.tile, (Tile{1, 0}));
  const Tensor values =
      dequantize(read_row_block(checkpoint, found.dialect, found.weights[0], 0, 2));
  const auto got = values.span<const float>();
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()),
            (std::vector<float>{-256, 0, 254, 2, -2, 4}));
}

TEST(Recognize, WithoutAConfig) {
  const Given codes = fp8("q.weight", 128, 128);
  expect_twos({codes, scale("q.weight_scale_inv", StoredType::f32, {1, 1}, kTwo)}, "",
              Dialect::deepseek, {128, 128}, {128, 128});
  expect_twos({codes, scale("q.weight_scale", StoredType::f32, {}, kTwo)}, "",
              Dialect::compressed_tensors, {0, 0}, {128, 128});
  const TemporaryFolder folder;
  write(folder, {codes, {{"norm", StoredType::f32, {1}}, kTwo}});
  const Recognized found = recognize(CheckpointReader(folder.path()));
  EXPECT_FALSE(found.quantized);
  EXPECT_EQ(found.plain.size(), 2U);
}

TEST(Recognize, ComfyuiByMetadataAndTheOlderLayout) {
  const TemporaryFolder by_metadata;
  write(by_metadata,
        {fp8("q.weight", 4, 8), scale("q.weight_scale", StoredType::f32, {}, kTwo),
         fp8("cast.weight", 4, 8)},
        "",
        {{"_quantization_metadata",
          R"({"format_version": "1.0", "layers": {"q": {"format": "float8_e4m3fn"}}})"}});
  EXPECT_EQ(decoded(by_metadata).values, std::vector<float>(32, 2.0F));
  EXPECT_EQ(decoded(by_metadata).dialect, Dialect::comfyui);

  const TemporaryFolder older;
  write(older, {fp8("q.weight", 4, 8), scale("q.scale_weight", StoredType::f32, {1}, kTwo),
                scale("scaled_fp8", StoredType::f8_e4m3, {2}, kOne)});
  EXPECT_EQ(decoded(older).values, std::vector<float>(32, 2.0F));
  EXPECT_EQ(decoded(older).weight.name, "q.weight");
}

// Second-level scales: a divisor in one dialect, a multiplier in the other; FP4's 1.0 is code 2.
TEST(Recognize, Nvfp4DividesOrMultiplies) {
  const Given packed{{"q.weight_packed", StoredType::u8, {2, 16}}, repeated(32, "\x22")};
  const Given bytes{{"q.weight", StoredType::u8, {2, 16}}, repeated(32, "\x22")};
  const Given scales = scale("q.weight_scale", StoredType::f8_e4m3, {2, 2}, kOne);
  const TemporaryFolder ct, modelopt;
  write(ct, {packed, scales, scale("q.weight_global_scale", StoredType::f32, {1}, as_bytes(0.5F))},
        kCt);
  write(modelopt, {bytes, scales, scale("q.weight_scale_2", StoredType::f32, {}, kTwo)},
        R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})");
  EXPECT_EQ(decoded(ct).values, std::vector<float>(64, 2.0F));
  EXPECT_EQ(decoded(modelopt).values, std::vector<float>(64, 2.0F));
}

std::string refusal(const std::vector<Given>& tensors, std::string_view config) {
  const TemporaryFolder folder;
  write(folder, tensors, config);
  try {
    const CheckpointReader checkpoint(folder.path());
    const Recognized found = recognize(checkpoint);
    for (const FoundWeight& one : found.weights)
      (void)read_row_block(checkpoint, found.dialect, one, 0, one.weight.shape[0]);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Eight numbers in a word, the first in its lowest bits, each with 8 added: 0x76543210 is -8, -7
// ... -1, and 0xFEDCBA98 0 to 7. Any groups of whole words are read, shapes of either width, and
// FP8 beside them.
TEST(Recognize, Int4OfCompressedTensors) {
  const std::string words("\x10\x32\x54\x76\x98\xBA\xDC\xFE", 8);
  const std::string narrow("\x01\0\0\0\x10\0\0\0", 8),
      wide("\x01\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0", 16);
  constexpr std::string_view kConfig =
      R"({"quant_method": "compressed-tensors", "config_groups": {
          "a": {"weights": {"num_bits": 8, "type": "float"}},
          "b": {"weights": {"num_bits": 4, "type": "int", "symmetric": true}}}})";
  std::vector<float> wanted;
  for (int i = -8; i < 8; ++i) wanted.push_back(2.0F * static_cast<float>(i));
  const Given packed{{"q.weight_packed", StoredType::i32, {1, 2}}, words};
  const Given scales{{"q.weight_scale", StoredType::bf16, {1, 2}},
                     std::string(kTwoBf16) + std::string(kTwoBf16)};
  for (const Given& shape : {Given{{"q.weight_shape", StoredType::i32, {2}}, narrow},
                             Given{{"q.weight_shape", StoredType::i64, {2}}, wide}}) {
    const TemporaryFolder folder;
    write(folder, {packed, scales, shape}, kConfig);
    EXPECT_EQ(decoded(folder).values, wanted);
    EXPECT_EQ(decoded(folder).weight.scaling.tile, (Tile{1, 8}));
  }
  const Given shape{{"q.weight_shape", StoredType::i64, {2}}, wide};
  const auto refused = [&](std::vector<Given> more, std::string_view config) {
    more.insert(more.end(), {packed, scales, shape});
    return refusal(more, config);
  };
  EXPECT_EQ(refused({}, kConfig), "");
  EXPECT_NE(refused({scale("q.weight_g_idx", StoredType::i32, {1}, as_bytes(0.0F))}, kConfig)
                .find("reordered"),
            std::string::npos);
  EXPECT_NE(refused({scale("q.weight_zero_point", StoredType::i32, {1}, as_bytes(0.0F))}, kConfig)
                .find("zero points"),
            std::string::npos);
  EXPECT_NE(refused({}, R"({"quant_method": "compressed-tensors", "config_groups": {
                            "a": {"weights": {"num_bits": 3, "type": "int"}}}})")
                .find("num_bits = 3"),
            std::string::npos);
}

TEST(Recognize, PartsThatContradictEachOtherAreRefusedByName) {
  const Given codes = fp8("q.weight", 256, 384);
  const auto expect = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find("q"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal({codes}, kCt), "without scales");
  expect(refusal({codes}, kFp8), "without scales");
  expect(refusal({codes}, kModelOpt), "without scales");
  expect(refusal({codes, scale("q.weight_scale", StoredType::f32, {5, 7}, kTwo)}, kCt), "fits");
  expect(refusal({codes, scale("q.weight_scale", StoredType::i32, {256, 1}, kTwo)}, kCt), "fit");
  expect(refusal({codes, scale("q.weight_scale_inv", StoredType::f32, {2, 2}, kTwo)}, kFp8),
         "fits");
  const Given packed{{"q.weight_packed", StoredType::u8, {2, 16}}, repeated(32, "\x22")};
  expect(refusal({packed, scale("q.weight_scale", StoredType::f8_e4m3, {2, 2}, kOne)}, kCt),
         "missing");
  expect(refusal({packed, scale("q.weight_scale", StoredType::u8, {2, 2}, kOne)}, kCt), "scales");
  const Given integers{{"q.weight_packed", StoredType::i32, {2, 4}}, repeated(32, "a")};
  expect(refusal({integers, scale("q.weight_scale", StoredType::bf16, {2, 1}, kTwoBf16)}, kCt),
         "expected weight_shape");
  // Asymmetric codes; and INT8 with scales that fit nothing.
  const Given eight{{"q.weight", StoredType::i8, {2, 4}}, repeated(8, "a")};
  const Given rows = scale("q.weight_scale", StoredType::bf16, {2, 1}, kTwoBf16);
  expect(refusal({eight, rows, scale("q.weight_zero_point", StoredType::i8, {2, 1}, "b")}, kCt),
         "asymmetric");
  expect(refusal({eight, scale("q.weight_scale", StoredType::bf16, {3, 1}, kTwoBf16)}, kCt),
         "q.weight");
  expect(refusal({codes, scale("q.weight_scale", StoredType::f32, {1}, as_bytes(-1.0F))}, kCt),
         "is -1");
  expect(refusal({codes}, R"({"quant_method": "gptq"})"), "gptq");
  expect(refusal({codes}, R"({"quant_method": "octavo"})"), "metadata");
}

}  // namespace
}  // namespace octavo
