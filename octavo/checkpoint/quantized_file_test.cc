#include "octavo/checkpoint/quantized_file.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <random>

#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/scaling_text.h"
#include "octavo/safetensors/file_writer.h"

namespace octavo {
namespace {

class QuantizedFile : public ::testing::Test {
 protected:
  std::string path =
      (std::filesystem::temp_directory_path() / text("octavo-quantized-", getpid(), ".safetensors"))
          .string();
  void TearDown() override { std::filesystem::remove(path); }

  static Tensor random_values(const Shape& shape) {
    Tensor values = Tensor::values(shape, DType::f32);
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (float& x : values.span<float>()) x = normal(random);
    return values;
  }

  static void expect_same(const QuantizedCopy& got, const QuantizedCopy& wanted) {
    ASSERT_EQ(got.exists(), wanted.exists());
    if (!wanted.exists()) return;
    const auto same = [](const Tensor& a, const Tensor& b) {
      return a.shape() == b.shape() && a.dtype() == b.dtype() && a.format() == b.format() &&
             a.nbytes() == b.nbytes() && a.view().strides == b.view().strides &&
             (a.nbytes() == 0 ||
              std::memcmp(a.view().data, b.view().data, static_cast<std::size_t>(a.nbytes())) == 0);
    };
    EXPECT_TRUE(same(got.codes, wanted.codes));
    EXPECT_TRUE(same(got.scales, wanted.scales));
    if (wanted.tensor_scale.owner() != nullptr) {
      EXPECT_TRUE(same(got.tensor_scale, wanted.tensor_scale));
    }
  }

  template <typename Call>
  static std::string message_of(Call&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(QuantizedFile, EveryPresetComesBackAsItWas) {
  QuantizedTensors tensors;
  for (const Shape& shape : {Shape{40, 96}, Shape{3, 33}, Shape{0, 5}, Shape{7}, Shape{}}) {
    const Tensor values = random_values(shape);
    for (const std::string& name : preset_names()) {
      Scaling scaling = preset(name);
      scaling.columnwise = shape.rank() == 2;
      tensors.emplace(text(name, " of ", to_string(shape)), quantize(values.view(), scaling));
    }
  }
  Scaling column_major = preset("fp8-1x128");
  column_major.scale_order = ScaleOrder::col_major;
  column_major.columnwise = true;
  tensors.emplace("column-major", quantize(random_values({40, 300}).view(), column_major));
  Scaling odd = preset("fp8-1x128");
  odd.format = parse_format("e3m3");
  odd.scale.format = ScaleFormat::bf16;
  odd.policy = AmaxPolicy::percentile;
  odd.percentile = 99.9;
  odd.encode.rounding = Rounding::stochastic;
  odd.encode.seed = 0xFFFFFFFFFFFFFFFFu;
  odd.scale.min_amax = 0.1F;
  tensors.emplace("odd one", quantize(random_values({5, 300}).view(), odd));

  save_quantized(path, tensors);
  const QuantizedTensors loaded = load_quantized(path);
  ASSERT_EQ(loaded.size(), tensors.size());
  for (const auto& [name, wanted] : tensors) {
    SCOPED_TRACE(name);
    const QuantizedTensor& got = loaded.at(name);
    EXPECT_EQ(got.shape, wanted.shape);
    EXPECT_EQ(got.source, wanted.source);
    EXPECT_EQ(got.scaling, wanted.scaling);
    expect_same(got.rowwise, wanted.rowwise);
    expect_same(got.columnwise, wanted.columnwise);
  }
}

TEST_F(QuantizedFile, TypesThatOthersKnow) {
  QuantizedTensors tensors;
  tensors.emplace("w", quantize(random_values({64, 64}).view(), preset("mxfp8")));
  tensors.emplace("v", quantize(random_values({64, 64}).view(), preset("nvfp4")));
  save_quantized(path, tensors);
  const safetensors::FileReader file(path);
  EXPECT_EQ(file.at("w").type, safetensors::StoredType::f8_e4m3);
  EXPECT_EQ(file.at("w.scales").type, safetensors::StoredType::f8_e8m0);
  EXPECT_EQ(file.at("v").type, safetensors::StoredType::f4);
  EXPECT_EQ(file.at("v.scales").type, safetensors::StoredType::f8_e4m3);
  EXPECT_EQ(file.at("v.tensor_scale").type, safetensors::StoredType::f32);
  EXPECT_EQ(file.header().metadata.at("octavo.version"), "1");
}

TEST_F(QuantizedFile, FilesOfOthersAreRefused) {
  { safetensors::FileWriter(path, {}).finish(); }
  EXPECT_NE(message_of([&] { (void)load_quantized(path); }).find("not written by octavo"),
            std::string::npos);
  {
    safetensors::WriteOptions options;
    options.metadata["octavo.version"] = "2";
    safetensors::FileWriter(path, {}, options).finish();
  }
  EXPECT_NE(message_of([&] { (void)load_quantized(path); }).find("later octavo"),
            std::string::npos);
}

// Inconsistent metadata: each inconsistency is an error before any memory is allocated for it.
TEST_F(QuantizedFile, InconsistentMetadataAreRefused) {
  for (const char* line :
       {"", "8x8", "8x8 float32", "8x float32 tile=1x32", "8x8 float33 tile=1x32",
        "99999999999x99999999999 float32 tile=1x32", "8x8 float32 tile=1x32 tile=1x32",
        "8x8 float32 colour=red", "8x8 float32 tile=1", "8x8 float32 margin=1000",
        "1099511627776 float32 format=e2m1fn tile=1x1", "8x8 float32 tile=0x0",
        "8x-8 float32 tile=1x32", "8x8 float32 seed=-1", "8x8 float32 policy=percentile:0"}) {
    safetensors::WriteOptions options;
    options.metadata["octavo.version"] = "1";
    options.metadata["octavo.tensor.w"] = line;
    safetensors::FileWriter writer(
        path, {{.name = "w", .type = safetensors::StoredType::u8, .shape = {3}}}, options);
    const std::array<std::byte, 3> bytes{};
    writer.write(writer.at("w"), 0, bytes);
    writer.finish();
    EXPECT_NE(message_of([&] { (void)load_quantized(path); }), "") << line;
  }
}

TEST_F(QuantizedFile, NegativeScalesAreRefused) {
  QuantizedTensors tensors;
  tensors.emplace("w", quantize(random_values({4, 256}).view(), preset("fp8-1x128")));
  tensors.at("w").rowwise.scales.span<float>()[5] = -1.0F;
  save_quantized(path, tensors);
  EXPECT_NE(message_of([&] { (void)load_quantized(path); }).find("tile (2, 1) is -1"),
            std::string::npos);
}

TEST(ScalingText, DefaultsAreLeftOut) {
  EXPECT_EQ(to_text(preset("mxfp8")), "format=e4m3fn tile=1x32 scale=e8m0 rule=rceil");
  for (const std::string& name : preset_names())
    EXPECT_EQ(parse_scaling(to_text(preset(name))), preset(name));
}

}  // namespace
}  // namespace octavo
