#include "octavo/model/gptq/gptq_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "octavo/base/error_testing_internal.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/model/gptq/gptq_checkpoint_testing_internal.h"
#include "octavo/pipeline/quantize_checkpoint.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

TEST_F(GptqCheckpoint, KeepsScalesAndErrsLessInEveryLayer) {
  const std::string model = written(dense());
  for (const std::string recipe : {"nvfp4", "mxfp4", "fp8-channel"}) {
    const CheckpointReport report = gptq_checkpoint(model, path(recipe), as(recipe), by_ids(600));
    (void)quantize_checkpoint(model, path(recipe + "-rtn"), as(recipe));
    EXPECT_FALSE(std::filesystem::exists(path(recipe + ".gptq")));
    const CheckpointReader made(path(recipe)), rounded(path(recipe + "-rtn"));
    const Recognized a = recognize(made), b = recognize(rounded);
    ASSERT_EQ(a.weights.size(), 14U);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < a.weights.size(); ++i) {
      const std::int64_t rows = a.weights[i].weight.shape[0];
      const QuantizedTensor x = read_row_block(made, a.dialect, a.weights[i], 0, rows);
      const QuantizedTensor y = read_row_block(rounded, b.dialect, b.weights[i], 0, rows);
      const auto bytes = [](const Tensor& of) {
        return std::vector<std::byte>(of.bytes().begin(), of.bytes().end());
      };
      EXPECT_EQ(bytes(x.rowwise.scales), bytes(y.rowwise.scales)) << a.weights[i].weight.name;
      differ += bytes(x.rowwise.codes) != bytes(y.rowwise.codes);
    }
    EXPECT_EQ(differ, 14U) << recipe;
    // "GPTQ: on the text results are off by A %, rounded to nearest B %"
    for (const TensorReport& tensor : report.tensors) {
      if (tensor.preset.empty()) continue;
      double error = 0, by_rounding = 0;
      const std::size_t at = tensor.why.find("off by ");
      ASSERT_NE(at, std::string::npos) << tensor.why;
      ASSERT_EQ(std::sscanf(tensor.why.c_str() + at, "off by %lf %%, rounded to nearest %lf",
                            &error, &by_rounding),
                2);
      EXPECT_LT(error, by_rounding) << tensor.name;
      // In the text they are rounded to hundredths of a percent.
      EXPECT_NEAR(100 * tensor.result_error, error, 0.0051) << tensor.name;
      EXPECT_NEAR(100 * tensor.rounded_result_error, by_rounding, 0.0051) << tensor.name;
    }
  }
}

TEST_F(GptqCheckpoint, BytesDoNotDependOnThreadsNorOnInterruptions) {
  const std::string model = written(dense());
  (void)gptq_checkpoint(model, path("one"), as("nvfp4", 1), by_ids(300));
  (void)gptq_checkpoint(model, path("five"), as("nvfp4", 5), by_ids(300));
  EXPECT_EQ(weights_in("one"), weights_in("five"));

  QuantizeCheckpointOptions options = as("nvfp4");
  options.on_progress = [](const Progress& progress) {
    return progress.current.find("layer 1") == std::string::npos;  // layer 0 is stored
  };
  expect_refused(ErrorCode::io, "resume",
                 [&] { (void)gptq_checkpoint(model, path("cut"), options, by_ids(300)); });
  EXPECT_TRUE(std::filesystem::exists(path("cut.gptq/layer-0.safetensors")));
  options.on_progress = nullptr;
  options.resume = true;
  expect_refused(ErrorCode::invalid_argument, "another run",
                 [&] { (void)gptq_checkpoint(model, path("cut"), options, by_ids(299)); });
  (void)gptq_checkpoint(model, path("cut"), options, by_ids(300));
  EXPECT_EQ(weights_in("one"), weights_in("cut"));
  EXPECT_FALSE(std::filesystem::exists(path("cut.gptq")));
  // Nothing is left to do.
  EXPECT_TRUE(gptq_checkpoint(model, path("cut"), options, by_ids(300)).was_complete);
  expect_refused(ErrorCode::io, "other options",
                 [&] { (void)gptq_checkpoint(model, path("cut"), options, by_ids(200)); });
}

TEST_F(GptqCheckpoint, WhatItCannotDoIsRefused) {
  TinyModel sparse = dense();
  sparse.experts = 4;
  sparse.top_k = 2;
  sparse.qk_norm = true;
  const std::string experts = written(sparse, "experts"), model = written(dense());
  expect_refused(ErrorCode::unsupported, "mixture of experts",
                 [&] { (void)gptq_checkpoint(experts, path("a"), as("mxfp4"), by_ids(100)); });
  expect_refused(ErrorCode::invalid_argument, "text",
                 [&] { (void)gptq_checkpoint(model, path("a"), as("mxfp4"), {}); });
  save("full/notes.txt", "mine");
  expect_refused(ErrorCode::invalid_argument, "not empty",
                 [&] { (void)gptq_checkpoint(model, path("full"), as("mxfp4"), by_ids(100)); });
  GptqCalibration little = by_ids(100);
  little.max_memory = 1 << 10;
  expect_refused(ErrorCode::invalid_argument, "max_memory",
                 [&] { (void)gptq_checkpoint(model, path("a"), as("mxfp4"), little); });
  // Text that is shorter than a window is one window; fewer tokens than channels are noted.
  GptqCalibration brief = by_ids(20);
  const CheckpointReport report = gptq_checkpoint(model, path("brief"), as("mxfp4"), brief);
  const bool noted = std::ranges::any_of(report.notes, [](const std::string& note) {
    return note.find("calibrated on 20 tokens, fewer than the 96 channels") != std::string::npos;
  });
  EXPECT_TRUE(noted);
}

}  // namespace
}  // namespace octavo
