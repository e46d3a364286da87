// Round trips: every weight that a dialect can hold reads back unchanged, codes and scales bit by
// bit, through all names, types, paddings and layouts.
#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_testing_internal.h"
#include "octavo/checkpoint/quantized_file.h"
#include "octavo/format/decode.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

constexpr std::array kDialects{Dialect::compressed_tensors, Dialect::deepseek, Dialect::modelopt,
                               Dialect::comfyui, Dialect::octavo};

std::vector<std::byte> bytes(const Tensor& tensor) {
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

// Scales as numbers: a file may hold them in a wider type.
std::vector<double> scale_values(const QuantizedTensor& row_block) {
  std::vector<double> out;
  const Tensor& scales = row_block.rowwise.scales;
  for (std::size_t i = 0; i < static_cast<std::size_t>(element_count(scales.shape())); ++i) {
    switch (row_block.scaling.scale.format) {
      case ScaleFormat::f32:
        out.push_back(scales.span<float>()[i]);
        break;
      case ScaleFormat::bf16:
        out.push_back(decode(bf16_format, scales.span<std::uint16_t>()[i]));
        break;
      case ScaleFormat::f16:
        out.push_back(decode(f16_format, scales.span<std::uint16_t>()[i]));
        break;
      case ScaleFormat::e8m0:
        out.push_back(decode(e8m0fnu, scales.span<std::uint8_t>()[i]));
        break;
      case ScaleFormat::e4m3_f32:
        out.push_back(decode(e4m3fn, scales.span<std::uint8_t>()[i]));
        break;
    }
  }
  return out;
}

void expect_same(const QuantizedTensor& got, const QuantizedTensor& want) {
  ASSERT_EQ(got.shape, want.shape);
  EXPECT_EQ(got.source, want.source == DType::f32 ? DType::bf16 : want.source);
  EXPECT_EQ(bytes(got.rowwise.codes), bytes(want.rowwise.codes));
  EXPECT_EQ(scale_values(got), scale_values(want));
  ASSERT_EQ(got.rowwise.tensor_scale.owner() != nullptr,
            want.rowwise.tensor_scale.owner() != nullptr);
  if (want.rowwise.tensor_scale.owner() != nullptr) {
    EXPECT_EQ(bytes(got.rowwise.tensor_scale), bytes(want.rowwise.tensor_scale));
  }
}

void expect_round_trip(Dialect dialect, const std::vector<TestWeight>& weights) {
  const TemporaryFolder folder;
  write_checkpoint(folder, dialect, weights);
  const CheckpointReader checkpoint(folder.path());
  const Recognized found = recognize(checkpoint);
  EXPECT_EQ(found.quantized, !weights.empty());
  if (found.quantized) {
    EXPECT_EQ(found.dialect, dialect);
  }
  EXPECT_EQ(found.plain, std::vector<std::string>{"model.norm.weight"});
  ASSERT_EQ(found.weights.size(), weights.size());
  for (const FoundWeight& one : found.weights) {
    const auto same = std::find_if(weights.begin(), weights.end(), [&](const TestWeight& weight) {
      return weight.weight.name == one.weight.name;
    });
    ASSERT_NE(same, weights.end()) << one.weight.name;
    SCOPED_TRACE(to_string(same->weight.shape));
    EXPECT_EQ(one.weight.module, same->weight.module);
    EXPECT_EQ(one.weight.shape, same->weight.shape);
    EXPECT_EQ(one.weight.scaling.tile, same->weight.scaling.tile);
    for (std::size_t i = 0; i < same->row_blocks.size(); ++i)
      expect_same(read_row_block(checkpoint, dialect, one, same->first_rows[i],
                                 same->row_blocks[i].shape[0]),
                  same->row_blocks[i]);
  }
}

Scaling with_scale(Scaling scaling, ScaleFormat format, ScaleRule rule) {
  scaling.scale.format = format;
  scaling.scale.rule = rule;
  return scaling;
}

TEST(DialectRoundTrip, EveryDialectPresetAndShape) {
  std::vector<std::pair<std::string, Scaling>> scalings;
  for (const std::string& name : preset_names()) scalings.emplace_back(name, preset(name));
  for (const std::string name : {"fp8:e5m2", "mxfp6:e3m2fn", "mxfp8:e5m2"})
    scalings.emplace_back(name, preset(name));
  for (const std::string name : {"fp8", "fp8-channel", "fp8-block"}) {
    scalings.emplace_back(name + " bf16",
                          with_scale(preset(name), ScaleFormat::bf16, ScaleRule::f32));
    scalings.emplace_back(name + " powers",
                          with_scale(preset(name), ScaleFormat::f32, ScaleRule::rceil));
    scalings.emplace_back(name + " e8m0",
                          with_scale(preset(name), ScaleFormat::e8m0, ScaleRule::rceil));
  }
  for (const std::int64_t group : {32, 64}) {
    Scaling scaling = preset("int4");
    scaling.tile = {1, group};
    scalings.emplace_back(text("int4 ", group), scaling);
    scalings.emplace_back(text("int4 f32 ", group),
                          with_scale(scaling, ScaleFormat::f32, ScaleRule::f32));
  }
  std::size_t spelled = 0;
  for (const Dialect dialect : kDialects)
    for (const auto& [name, scaling] : scalings)
      for (const std::int64_t rows_at_once : support::some_of<std::int64_t>({1, 3})) {
        std::vector<TestWeight> weights;
        for (const Shape& shape : {Shape{256, 384}, Shape{128, 128}, Shape{384, 256}, Shape{1, 32},
                                   Shape{130, 96}, Shape{7, 48}, Shape{33, 17}, Shape{5, 1},
                                   Shape{300, 257}, Shape{2, 128, 256}, Shape{3, 129, 64}}) {
          const bool stack = shape.rank() == 3;
          const std::string layer = text("model.layers.", weights.size(), ".mlp");
          const QuantizedWeight weight{
              .name = layer + (stack ? ".experts.down_proj" : ".down_proj.weight"),
              .module = layer + (stack ? ".experts.down_proj" : ".down_proj"),
              .shape = shape,
              .source = DType::bf16,
              .scaling = scaling};
          if (!why_not(dialect, weight).empty()) {
            EXPECT_THROW((void)dialect_tensors(dialect, weight), Error);
            continue;
          }
          // For a stack whose tiles end with its matrices, a row block is one matrix.
          const bool whole = stack && row_block_rows(dialect, weight) == shape[1];
          weights.push_back(
              make_weight(dialect, weight.name, shape, scaling, whole ? 1 : rows_at_once));
        }
        SCOPED_TRACE(text(name_of(dialect), " ", name, " ", rows_at_once));
        expect_round_trip(dialect, weights);
        spelled += weights.size();
      }
  EXPECT_GT(spelled, 500U);
}

// Which dialect holds which scheme, so that a check that refuses too much is seen.
TEST(DialectRoundTrip, WhichDialectHoldsWhichScheme) {
  const auto can = [](Dialect dialect, std::string_view scaling, const Shape& shape) {
    return why_not(dialect, {.name = "a.weight",
                             .module = "a",
                             .shape = shape,
                             .source = DType::bf16,
                             .scaling = preset(scaling)})
        .empty();
  };
  const auto those = [&](std::string_view scaling, const Shape& shape) {
    std::string out;
    for (const Dialect dialect : kDialects)
      if (can(dialect, scaling, shape)) out += text(out.empty() ? "" : " ", name_of(dialect));
    return out;
  };
  EXPECT_EQ(those("fp8", {33, 17}), "compressed-tensors modelopt comfyui octavo");
  EXPECT_EQ(those("fp8:e5m2", {33, 17}), "comfyui octavo");
  EXPECT_EQ(those("fp8-channel", {33, 17}), "compressed-tensors modelopt octavo");
  EXPECT_EQ(those("fp8-block", {256, 128}), "compressed-tensors deepseek modelopt octavo");
  EXPECT_EQ(those("fp8-block", {256, 192}), "octavo");
  // A ragged last block of rows: not where another part of a fused matrix follows.
  EXPECT_EQ(those("fp8-block", {192, 256}), "compressed-tensors deepseek octavo");
  EXPECT_EQ(those("fp8-1x128", {256, 256}), "octavo");
  EXPECT_EQ(those("mxfp8", {33, 64}), "compressed-tensors deepseek modelopt comfyui octavo");
  EXPECT_EQ(those("mxfp8", {33, 48}), "comfyui octavo");
  EXPECT_EQ(those("mxfp8:e5m2", {64, 64}), "octavo");
  EXPECT_EQ(those("mxfp6", {33, 64}), "compressed-tensors octavo");
  EXPECT_EQ(those("mxfp6:e3m2fn", {33, 64}), "octavo");
  EXPECT_EQ(those("mxfp4", {33, 64}), "compressed-tensors octavo");
  EXPECT_EQ(those("mxint8", {64, 64}), "octavo");
  EXPECT_EQ(those("int8-channel", {33, 17}), "compressed-tensors octavo");
  EXPECT_EQ(those("int4", {33, 256}), "compressed-tensors octavo");
  EXPECT_EQ(those("int4", {33, 192}), "octavo");
  EXPECT_EQ(those("nvfp4", {33, 48}), "compressed-tensors modelopt comfyui octavo");
  EXPECT_EQ(those("nvfp4", {33, 40}), "comfyui octavo");
  EXPECT_EQ(those("nvfp4", {16}), "");
}

TEST(DialectRoundTrip, OctavosOwnFilesAreThoseOfSaveQuantized) {
  for (const std::string_view name : {"mxfp4", "nvfp4", "fp8-block"}) {
    const TemporaryFolder folder;
    const TestWeight weight = make_weight(Dialect::octavo, "w.weight", {150, 70}, preset(name), 64);
    write_checkpoint(folder, Dialect::octavo, {weight});
    const QuantizedTensors loaded = load_quantized(folder.path("model.safetensors"));
    ASSERT_EQ(loaded.size(), 1U);
    const QuantizedTensor& whole = loaded.at("w.weight");
    std::vector<std::byte> codes, scales;
    for (const QuantizedTensor& row_block : weight.row_blocks) {
      codes.insert(codes.end(), row_block.rowwise.codes.bytes().begin(),
                   row_block.rowwise.codes.bytes().end());
      scales.insert(scales.end(), row_block.rowwise.scales.bytes().begin(),
                    row_block.rowwise.scales.bytes().end());
    }
    EXPECT_EQ(bytes(whole.rowwise.codes), codes);
    EXPECT_EQ(bytes(whole.rowwise.scales), scales);
    EXPECT_EQ(whole.source, DType::bf16);
  }
}

TEST(DialectRoundTrip, RowBlocksThatDoNotAlignAreRefused) {
  const TestWeight weight =
      make_weight(Dialect::deepseek, "w.weight", {256, 128}, preset("fp8-block"));
  EXPECT_THROW((void)pack_row_block(Dialect::deepseek, weight.weight, 64, weight.row_blocks[0]),
               Error);
  EXPECT_THROW((void)pack_row_block(Dialect::deepseek, weight.weight, 256, weight.row_blocks[0]),
               Error);
  EXPECT_THROW((void)pack_row_block(Dialect::deepseek, weight.weight, -128, weight.row_blocks[0]),
               Error);
  const TestWeight other = make_weight(Dialect::octavo, "w.weight", {128, 64}, preset("fp8-block"));
  EXPECT_THROW((void)pack_row_block(Dialect::deepseek, weight.weight, 0, other.row_blocks[0]),
               Error);
}

}  // namespace
}  // namespace octavo
