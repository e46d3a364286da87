// Experts that quantizing split out of a stack are merged again when they are dequantized: name,
// shape and shard as the source had them.
#include <gtest/gtest.h>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/pipeline_testing_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::uint64_t kExperts = 3, kIn = 64, kMid = 96;

class RestackTest : public PipelineTest {
 protected:
  // One layer; a stack is stored as [experts, in, out] or [experts, out, in].
  void write_stacks(bool in_out) const {
    std::filesystem::create_directory(root / "model");
    const std::vector<TestTensor> tensors{
        random_tensor(kUp, in_out ? Sizes{kExperts, kIn, 2 * kMid} : Sizes{kExperts, 2 * kMid, kIn},
                      1),
        random_tensor(kDown, in_out ? Sizes{kExperts, kMid, kIn} : Sizes{kExperts, kIn, kMid}, 2),
        random_tensor("model.layers.0.mlp.gate.weight", {kExperts, kIn}, 3)};
    save("model/config.json", R"({"architectures": ["A"], "model_type": "a"})");
    write_tensors(path("model/model.safetensors"), tensors);
  }
  // The expected values: the stack through quantize and dequantize, expert by expert.
  [[nodiscard]] std::vector<float> wanted(const std::string& name, bool in_out,
                                          std::string_view preset_name) const {
    const CheckpointReader reader(path("model"));
    const StoredTensor& stored = reader.at(name);
    const Tensor stack = reader.files()[stored.file].read_tensor(*stored.entry);
    const std::int64_t parts = name == kUp ? 2 : 1;
    const View all = stack.view();
    const std::int64_t out = all.shape[in_out ? 2 : 1] / parts, in = all.shape[in_out ? 1 : 2];
    std::vector<float> values(static_cast<std::size_t>(element_count(all.shape)));
    for (std::int64_t expert = 0; expert < all.shape[0]; ++expert)
      for (std::int64_t part = 0; part < parts; ++part) {
        View one = all;
        const std::int64_t row_step = all.strides[in_out ? 2 : 1],
                           col_step = all.strides[in_out ? 1 : 2];
        one.data =
            static_cast<std::byte*>(all.data) + expert * all.strides[0] + part * out * row_step;
        one.shape = {out, in};
        one.strides = {row_step, col_step};
        const Tensor decoded = dequantize(quantize(one, preset(preset_name)), DType::f32);
        for (std::int64_t r = 0; r < out; ++r)
          for (std::int64_t c = 0; c < in; ++c) {
            const std::int64_t row = part * out + r;
            const std::int64_t at = in_out ? (expert * in + c) * out * parts + row
                                           : (expert * out * parts + row) * in + c;
            values[static_cast<std::size_t>(at)] =
                decoded.span<float>()[static_cast<std::size_t>(r * in + c)];
          }
      }
    return values;
  }

  using Sizes = std::vector<std::uint64_t>;
  static constexpr const char* kUp = "model.layers.0.mlp.experts.gate_up_proj";
  static constexpr const char* kDown = "model.layers.0.mlp.experts.down_proj";
};

TEST_F(RestackTest, StacksComeBackAsTheyWere) {
  for (const bool in_out : {false, true}) {
    SCOPED_TRACE(in_out);
    for (const char* const name : {"model", "ct", "octavo", "plain"})
      std::filesystem::remove_all(path(name));
    write_stacks(in_out);
    (void)run("ct", recipe("mxfp8"));
    EXPECT_EQ(CheckpointReader(path("ct")).find(kUp), nullptr);
    // Through another dialect, which keeps the provenance.
    (void)convert_checkpoint(path("ct"), path("octavo"), Dialect::octavo);
    const ConvertCheckpointResult result =
        dequantize_checkpoint(path("octavo"), path("plain"), DType::f32, {.threads = 2});
    EXPECT_TRUE(result.notes.empty());
    const CheckpointReader source(path("model")), plain(path("plain"));
    ASSERT_EQ(plain.tensors().size(), source.tensors().size());
    for (const char* const name : {kUp, kDown}) {
      const StoredTensor& stored = plain.at(name);
      EXPECT_EQ(stored.entry->shape, source.at(name).entry->shape);
      const Tensor got = plain.files()[stored.file].read_tensor(*stored.entry);
      const std::vector<float> want = wanted(name, in_out, "mxfp8");
      EXPECT_TRUE(std::ranges::equal(got.span<float>(), want)) << name;
    }
    EXPECT_EQ(plain.nbytes(), result.bytes_after);
    EXPECT_FALSE(plain.config()["octavo"].has("stacks"));
  }
}

// The provenance is untrusted: what does not fit stays split.
TEST_F(RestackTest, ProvenanceThatDoesNotFitIsNotFollowed) {
  write_stacks(false);
  (void)run("ct", recipe("mxfp8"));
  const Json config = CheckpointReader(path("ct")).config();
  const auto say = [&](const Json& stacks) {
    Json changed = config, words = config["octavo"];
    words.set("stacks", stacks);
    changed.set("octavo", words);
    save("ct/config.json", changed.dump());
    std::filesystem::remove_all(path("plain"));
    return dequantize_checkpoint(path("ct"), path("plain"), DType::bf16);
  };
  const auto stack = [&](const char* name, std::vector<Json> shape) {
    return Json::object({{"name", name}, {"shape", Json::array(std::move(shape))}});
  };
  for (const Json& lie :
       {stack(kUp, {4, 192, 64}), stack(kUp, {std::int64_t{1} << 50, 192, 64}),
        stack(kUp, {3, 192}), stack(kUp, {3, 96, 64}), stack("model.norm", {3, 192, 64}),
        stack(kUp, {-3, 192, 64}), Json(7), Json("x"), stack("../x.down_proj", {3, 64, 96})}) {
    const ConvertCheckpointResult result = say(Json::array({lie}));
    EXPECT_EQ(result.notes.size(), 1U) << lie.dump();
    EXPECT_NE(CheckpointReader(path("plain")).find("model.layers.0.mlp.experts.0.up_proj.weight"),
              nullptr);
  }
  // Recorded twice: the first entry takes the weights.
  EXPECT_EQ(say(Json::array({stack(kUp, {3, 192, 64}), stack(kUp, {3, 192, 64})})).notes.size(),
            1U);
  EXPECT_NE(CheckpointReader(path("plain")).find(kUp), nullptr);
}

// The matrices of a square stack do not show its orientation; the layer's other stack does.
TEST_F(RestackTest, TheOrientationOfASquareStackIsNotTakenOnTrust) {
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"),
                {random_tensor(kUp, {2, 128, 64}, 1), random_tensor(kDown, {2, 64, 64}, 2)});
  (void)run("ct", recipe("mxfp8"));
  Json config = CheckpointReader(path("ct")).config(), words = config["octavo"];
  const std::vector<Json> stacks = words["stacks"].elements();
  ASSERT_EQ(stacks.size(), 2U);
  const auto restacked = [&](const Json& said) {
    words.set("stacks", said);
    config.set("octavo", words);
    save("ct/config.json", config.dump());
    std::filesystem::remove_all(path("plain"));
    const ConvertCheckpointResult result =
        dequantize_checkpoint(path("ct"), path("plain"), DType::bf16);
    const CheckpointReader plain(path("plain"));
    const bool whole = plain.find(kDown) != nullptr;
    EXPECT_EQ(result.notes.empty(), whole && plain.find(kUp) != nullptr);
    return whole;
  };
  EXPECT_TRUE(restacked(Json::array({stacks[0], stacks[1]})));
  const bool first = stacks[0]["name"].string_or("") == kDown;
  Json down = stacks[first ? 0 : 1];
  const Json up = stacks[first ? 1 : 0];
  EXPECT_FALSE(restacked(Json::array({down})));  // no shape confirms it
  down.set("in_out", true);
  EXPECT_FALSE(restacked(Json::array({down, up})));
  EXPECT_FALSE(restacked(Json::array({up, down})));
}

TEST_F(RestackTest, ExpertsInSeveralFiles) {
  write_stacks(true);
  QuantizeCheckpointOptions options = recipe("mxfp8");
  options.plan.shard_bytes = 20'000;
  (void)run("ct", options);
  ASSERT_GT(CheckpointReader(path("ct")).files().size(), 2U);
  (void)dequantize_checkpoint(path("ct"), path("plain"), DType::f32);
  const CheckpointReader plain(path("plain"));
  const StoredTensor& stored = plain.at(kUp);
  EXPECT_TRUE(
      std::ranges::equal(plain.files()[stored.file].read_tensor(*stored.entry).span<float>(),
                         wanted(kUp, true, "mxfp8")));
}

}  // namespace
}  // namespace octavo
