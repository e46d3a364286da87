// Whole checkpoints, byte for byte as ModelOpt's export has them: codes, scales, names, types,
// shapes, and what its config files say. checkpoint_modelopt/ has what it wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "octavo/checkpoint/dialect/dialect_testing_internal.h"
#include "octavo/convert/widen.h"
#include "octavo/pipeline/quantize_checkpoint.h"

namespace octavo {
namespace {

const std::string kFolder = OCTAVO_SOURCE_DIR "/tests/conformance/checkpoint_modelopt/";

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The source with its values in F32.
void write_wide(const std::string& path) {
  const CheckpointReader source(kFolder + "source.safetensors");
  std::vector<safetensors::TensorPlan> plans;
  for (const StoredTensor& tensor : source.tensors())
    plans.push_back({tensor.name(), safetensors::StoredType::f32, tensor.entry->shape});
  safetensors::FileWriter writer(path, plans);
  for (const StoredTensor& tensor : source.tensors())
    writer.write(writer.at(tensor.name()), 0,
                 widened(source.files()[0].read_tensor(*tensor.entry)).bytes());
  writer.finish();
}

void expect_bytes(const std::string& file, bool wide, bool share) {
  SCOPED_TRACE(file);
  const std::string recipe = file == "fp8-bf16" ? "fp8" : file;
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("in"));
  if (wide)
    write_wide(folder.path("in/model.safetensors"));
  else
    std::filesystem::copy_file(kFolder + "source.safetensors", folder.path("in/model.safetensors"));
  folder.save("in/config.json", R"({"architectures": ["LlamaForCausalLM"]})");
  QuantizeCheckpointOptions options;
  options.plan.recipe = recipe;
  options.plan.target = Dialect::modelopt;
  options.plan.arith = "modelopt";
  options.plan.share = share;
  options.plan.bf16_scales = false;
  (void)quantize_checkpoint(folder.path("in"), folder.path("out"), options);
  const CheckpointReader got(folder.path("out")), wanted(kFolder + file + ".safetensors");
  EXPECT_GE(wanted.tensors().size(), 14U);
  for (const StoredTensor& theirs : wanted.tensors()) {
    SCOPED_TRACE(theirs.name());
    const StoredTensor& ours = got.at(theirs.name());
    EXPECT_EQ(ours.entry->type, theirs.entry->type);
    EXPECT_EQ(ours.entry->shape, theirs.entry->shape);
    std::vector<std::byte> a(ours.nbytes()), b(theirs.nbytes());
    got.read(ours, 0, a);
    wanted.read(theirs, 0, b);
    EXPECT_EQ(a, b);
  }
  // octavo's ignore list has no embedding, which is no Linear, and producer and groups differ.
  const Json configs = parse_json(content(kFolder + "configs.json"), "configs.json");
  for (const std::string_view key : {"quant_algo", "kv_cache_quant_algo", "group_size"}) {
    const Json& theirs = configs[file]["hf_quant_config"]["quantization"];
    EXPECT_EQ(got.hf_quant_config()["quantization"][key], theirs[key]) << key;
  }
  EXPECT_EQ(got.config()["quantization_config"]["quant_algo"],
            configs[file]["quantization_config"]["quant_algo"]);
  EXPECT_EQ(got.config()["quantization_config"]["quant_method"].string_or(""), "modelopt");
}

TEST(CheckpointModelopt, Bytes) {
  expect_bytes("fp8", true, false);
  expect_bytes("fp8-bf16", false, false);  // quotients are rounded to bf16 first
  expect_bytes("fp8-channel", false, false);
  expect_bytes("mxfp8", false, false);
  expect_bytes("nvfp4", false, true);  // its export gives what servers fuse one second level
}

// And the way back: what ModelOpt wrote is read as what it is.
TEST(CheckpointModelopt, IsRecognized) {
  const Json configs = parse_json(content(kFolder + "configs.json"), "configs.json");
  for (const std::string recipe : {"fp8", "fp8-channel", "mxfp8", "nvfp4"}) {
    SCOPED_TRACE(recipe);
    const TemporaryFolder folder;
    std::filesystem::copy_file(kFolder + recipe + ".safetensors", folder.path("model.safetensors"));
    folder.save(
        "config.json",
        Json::object({{"quantization_config", configs[recipe]["quantization_config"]}}).dump());
    const CheckpointReader checkpoint(folder.path());
    const Recognized found = recognize(checkpoint);
    EXPECT_EQ(found.dialect, Dialect::modelopt);
    EXPECT_EQ(found.weights.size(), 7U);
    EXPECT_TRUE(found.plain.empty());
    for (const FoundWeight& one : found.weights) {
      EXPECT_EQ(one.weight.scaling.tile, preset(recipe).tile);
      const QuantizedTensor row_block =
          read_row_block(checkpoint, found.dialect, one, 0, one.weight.shape[0]);
      // Row 3 is zeros; others are not.
      const Tensor values = dequantize(row_block);
      const auto cols = static_cast<std::size_t>(one.weight.shape[1]);
      const auto row = values.span<float>().subspan(3 * cols, cols);
      EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](float x) { return x == 0; }));
      EXPECT_GT(std::abs(values.span<float>()[5 * cols + 7]), 0);
    }
  }
}

}  // namespace
}  // namespace octavo
