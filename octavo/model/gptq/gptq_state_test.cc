// What gptq_checkpoint refuses before it begins, and whose state it takes up.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/model/gptq/gptq_checkpoint_testing_internal.h"
#include "octavo/model/gptq/gptq_memory_internal.h"
#include "octavo/model/statistics/input_statistics_file.h"
#include "octavo/model/statistics/statistics_file.h"
#include "octavo/pipeline/quantize_checkpoint.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

class GptqState : public GptqCheckpoint {
 protected:
  // The same names and shapes, with one number of one weight changed.
  std::string written_with(const std::string& weight, float number) {
    TinyModel model = dense();
    model.fill();
    for (TestTensor& tensor : model.tensors)
      if (tensor.plan.name == weight) std::memcpy(tensor.bytes.data(), &number, sizeof number);
    save("model/config.json", model.config().dump());
    write_tensors(path("model/model.safetensors"), model.tensors);
    return path("model");
  }
  // Made by hand: channels whose weights are powers of two from 1 to 2^12.
  std::shared_ptr<const InputStatistics> statistics(float first) {
    ModelStatistics made;
    const TinyModel model = dense();
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
      for (const char* const name :
           {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
        const bool down = std::string_view(name) == "mlp.down_proj";
        ModuleStatistics one{.module = text("model.layers.", layer, ".", name), .rows = 10};
        for (std::int64_t i = 0; i < (down ? model.mid : model.hidden); ++i) {
          one.mean_square.push_back(first * std::exp2(static_cast<float>(i % 13)));
          one.amax.push_back(4.0F);
        }
        made.modules.push_back(one);
      }
    const std::string file = path(text("statistics-", first, ".safetensors"));
    write_statistics(file, made);
    return open_input_statistics(file, path("model"));
  }
  void refuse(const std::string& words, const QuantizeCheckpointOptions& options,
              ErrorCode code = ErrorCode::invalid_argument) {
    expect_refused(code, words, [&] {
      (void)gptq_checkpoint(path("model"), path("out"), options, by_ids(300));
    });
  }
};

constexpr const char* kLast = "model.layers.1.mlp.down_proj.weight";

TEST_F(GptqState, OfOtherFilesOrOptionsIsRefused) {
  const std::string model = written(dense());
  QuantizeCheckpointOptions options = as("nvfp4");
  stop_after_a_layer(model, "out", options, by_ids(300));
  options.resume = true;
  QuantizeCheckpointOptions other = options;
  other.plan.clamp_non_finite = true;
  refuse("another run: option clamp_non_finite", other);
  other = options;
  other.plan.shard_bytes = 50000;
  refuse("another run: option shard_bytes", other);
  // As after more training: no header differs.
  (void)written_with(kLast, 0.125F);
  refuse("another run: models", options);
  (void)written(dense());
  (void)gptq_checkpoint(model, path("out"), options, by_ids(300));
}

TEST_F(GptqState, OfOtherStatisticsIsRefused) {
  const std::string model = written(dense());
  QuantizeCheckpointOptions options = as("nvfp4");
  options.plan.scale_policy = "wmse";
  options.plan.statistics = statistics(1.0F);
  stop_after_a_layer(model, "out", options, by_ids(300));
  options.resume = true;
  QuantizeCheckpointOptions other = options;
  other.plan.statistics = statistics(2.0F);
  refuse("another run: statistics", other);
  (void)gptq_checkpoint(model, path("out"), options, by_ids(300));
}

TEST_F(GptqState, IsTakenUpWhereThatIsAskedForAlone) {
  const std::string model = written(dense());
  stop_after_a_layer(model, "out", as("nvfp4"), by_ids(300));
  const auto written_at = std::filesystem::last_write_time(path("out.gptq/layer-0.safetensors"));
  refuse("has the state of a run that was stopped; expected option resume", as("nvfp4"));
  EXPECT_EQ(std::filesystem::last_write_time(path("out.gptq/layer-0.safetensors")), written_at);
  EXPECT_TRUE(std::filesystem::exists(path("out.gptq/state.json")));
  std::filesystem::remove_all(path("out.gptq"));
  save("out.gptq/layer-0.json", "mine");
  refuse("is there already and not empty; expected option resume", as("nvfp4"));
}

TEST_F(GptqState, WhatIsWrongIsFoundBeforeAnythingIsWritten) {
  (void)written_with(kLast, std::numeric_limits<float>::quiet_NaN());
  refuse("tensor 'model.layers.1.mlp.down_proj.weight' has NaN at [0, 0]", as("nvfp4"));
  (void)written(dense());
  GptqCalibration damped = by_ids(300);
  damped.damping = -1.0;
  expect_refused(ErrorCode::invalid_argument, "damping",
                 [&] { (void)gptq_checkpoint(path("model"), path("out"), as("nvfp4"), damped); });
  expect_refused(ErrorCode::invalid_argument, "name of a GGUF file", [&] {
    (void)gptq_checkpoint(path("model"), path("out.gguf"), as("nvfp4"), by_ids(300));
  });
  QuantizeCheckpointOptions shards = as("nvfp4");
  shards.plan.shard_bytes = 20000;
  expect_refused(ErrorCode::invalid_argument, "is one file and the checkpoint has", [&] {
    (void)gptq_checkpoint(path("model"), path("out.safetensors"), shards, by_ids(300));
  });
  for (const char* const name : {"out", "out.gptq", "out.gguf.gptq", "out.safetensors.gptq"})
    EXPECT_FALSE(std::filesystem::exists(path(name))) << name;
}

TEST_F(GptqState, NeedsAreToldBeforeTheFirstLayer) {
  (void)written(dense());
  GptqCalibration texts = by_ids(300);
  std::vector<std::string> told;
  texts.on_begin = [&](const std::string& needs) { told.push_back(needs); };
  const std::string needs = check_gptq_checkpoint(path("model"), "", as("nvfp4"), texts);
  EXPECT_NE(needs.find("for 2 layers on 300 tokens"), std::string::npos) << needs;
  EXPECT_NE(needs.find("the Hessian of 'model.layers.0.mlp.down_proj.weight' with 96 channels"),
            std::string::npos)
      << needs;
  EXPECT_TRUE(told.empty());
  (void)gptq_checkpoint(path("model"), path("out"), as("nvfp4"), texts);
  EXPECT_EQ(told, (std::vector<std::string>{needs}));
  texts.max_memory = 1 << 10;
  expect_refused(ErrorCode::invalid_argument, "GPTQ: the Hessian of 'model.layers.0.mlp.down_proj",
                 [&] { (void)check_gptq_checkpoint(path("model"), "", as("nvfp4"), texts); });
}

// Scales by policy wmse are those that quantize gives with the same statistics.
TEST_F(GptqState, PolicyWmseWeighsByTheStatistics) {
  const std::string model = written(dense());
  QuantizeCheckpointOptions options = as("nvfp4");
  options.plan.scale_policy = "wmse";
  options.plan.statistics = statistics(1.0F);
  const CheckpointReport report = gptq_checkpoint(model, path("out"), options, by_ids(300));
  (void)quantize_checkpoint(model, path("rounded"), options);
  options.plan.scale_policy = "mse";
  (void)quantize_checkpoint(model, path("unweighted"), options);
  const auto scales_in = [&](const std::string& folder) {
    std::vector<std::byte> out;
    const CheckpointReader reader(path(folder));
    const Recognized found = recognize(reader);
    for (const FoundWeight& weight : found.weights) {
      const QuantizedTensor rows =
          read_row_block(reader, found.dialect, weight, 0, weight.weight.shape[0]);
      const auto bytes = rows.rowwise.scales.bytes();
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
    return out;
  };
  EXPECT_EQ(scales_in("out"), scales_in("rounded"));
  EXPECT_NE(scales_in("out"), scales_in("unweighted"));
}

TEST(GptqMemory, IsThatOfTheLargestProduct) {
  using gptq_detail::product_nbytes;
  constexpr std::uint64_t kMi = 1 << 20;
  // Two matrices of f64 of 4096 x 4096, beside which a small weight is nothing.
  EXPECT_EQ(product_nbytes(16, 4096, 2, 40000), 256 * kMi);
  // A head-like matrix, 65536 x 256: bf16 twice, three times f32, scales, carried sums, and M.
  EXPECT_EQ(product_nbytes(65536, 256, 2, 9 * kMi),
            16 * kMi * (4 + 12) + 9 * kMi + 8 * kMi + 32 * kMi + kMi / 4);
  // 64 channels: a run of 1024 tokens and a panel are more than the sums.
  EXPECT_EQ(product_nbytes(1, 64, 2, 40), 8 * 64 * 64 + 4 * 64 * 1024 + 4 * 64 * 256);
}

TEST(GptqMemory, LayersAreFoundByName) {
  using gptq_detail::layer_in_name;
  EXPECT_EQ(layer_in_name("model.layers.12.mlp.up_proj.weight"), 12);
  EXPECT_EQ(layer_in_name("layers.0.self_attn.q_proj.weight"), 0);
  for (const char* const name :
       {"lm_head.weight", "model.mylayers.1.x", "layers.", "layers.x.y", "model.layers.3"})
    EXPECT_EQ(layer_in_name(name), -1) << name;
}

}  // namespace
}  // namespace octavo
