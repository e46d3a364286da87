// Files of statistics as quantize_checkpoint takes them.
#include "octavo/model/statistics/input_statistics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/model/model_fingerprint_internal.h"
#include "octavo/model/statistics/statistics_file.h"

namespace octavo {
namespace {

class InputStatisticsFile : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    write_tensors(path("model.safetensors"), {random_tensor("a.weight", {2, 3}, 1)});
    made.origin.tokens = 7;
    made.origin.fingerprint = model_fingerprint(CheckpointReader(path("model.safetensors")));
    made.modules.push_back(
        {.module = "a", .rows = 7, .amax = {1.0F, 3.0F, 2.0F}, .mean_square = {0.5F, 0.25F, 2.0F}});
    made.caches.push_back({.module = "self_attn", .k_amax = {1.0F, 4.0F}, .v_amax = {2.0F, 0.5F}});
  }
  [[nodiscard]] std::shared_ptr<const InputStatistics> opened() const {
    write_statistics(path("statistics.safetensors"), made);
    return open_input_statistics(path("statistics.safetensors"), path("model.safetensors"));
  }

  ModelStatistics made;
};

TEST_F(InputStatisticsFile, GivesWhatItHas) {
  const auto seen = opened();
  const auto range = seen->range_of("a");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->width, 3);
  EXPECT_EQ(range->rows, 7);
  EXPECT_EQ(range->amax, 3.0F);
  EXPECT_EQ(seen->mean_square("a"), (std::vector<float>{0.5F, 0.25F, 2.0F}));
  EXPECT_FALSE(seen->range_of("b").has_value());
  ASSERT_EQ(seen->caches().size(), 1u);
  EXPECT_EQ(seen->caches()[0].k_amax, 4.0F);
  EXPECT_EQ(seen->caches()[0].v_amax, 2.0F);
}

TEST_F(InputStatisticsFile, ShowsNaNInsteadOfDroppingIt) {
  made.modules[0].amax[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(*opened()->range_of("a")->amax));
}

TEST_F(InputStatisticsFile, IsToldFromAnotherByItsNumbers) {
  const std::string one = opened()->identity();
  EXPECT_EQ(opened()->identity(), one);
  const ModelStatistics before = made;
  const auto expect_another = [&](const char* what) {
    EXPECT_NE(opened()->identity(), one) << what;
    made = before;
  };
  made.modules[0].mean_square[2] = 2.5F;
  expect_another("mean_square");
  made.modules[0].amax[1] = 3.5F;
  expect_another("amax");
  made.modules[0].rows = 8;
  expect_another("rows");
  made.caches[0].k_amax[0] = 1.5F;
  expect_another("keys");
  made.caches[0].v_amax[1] = 0.25F;
  expect_another("values");
}

TEST_F(InputStatisticsFile, OfAnotherModelIsRefused) {
  made.origin.fingerprint ^= 1;
  const std::string message = message_of([&] { (void)opened(); }, ErrorCode::invalid_argument);
  EXPECT_NE(message.find("is another model"), std::string::npos) << message;
}

// The same shapes, other values: a model after more training.
TEST_F(InputStatisticsFile, OfAModelOfTheSameShapesIsRefused) {
  write_tensors(path("model.safetensors"), {random_tensor("a.weight", {2, 3}, 2)});
  const std::string message = message_of([&] { (void)opened(); }, ErrorCode::invalid_argument);
  EXPECT_NE(message.find("is another model"), std::string::npos) << message;
}

TEST_F(InputStatisticsFile, WithAFingerprintOfShapesAloneIsRefused) {
  (void)opened();
  std::string content = content_of(path("statistics.safetensors"));
  const std::string key = "\"model_fingerprint_version\":\"";
  ASSERT_NE(content.find(key), std::string::npos) << content.substr(0, 400);
  content[content.find(key) + key.size()] = '1';
  const std::string file = save("old.safetensors", content);
  const auto open = [&] { (void)open_input_statistics(file, path("model.safetensors")); };
  const std::string message = message_of(open, ErrorCode::invalid_argument);
  EXPECT_NE(message.find("expected a fingerprint of version 2"), std::string::npos) << message;
}

}  // namespace
}  // namespace octavo
