#include "octavo/pipeline/sweep.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "octavo/base/error_testing_internal.h"
#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

using error_testing::message_of;

class SweepTest : public PipelineTest {
 protected:
  [[nodiscard]] SweepResult sweep(const std::vector<std::string>& axes,
                                  const QuantizeCheckpointOptions& options = {}) const {
    std::vector<SweepAxis> parsed;
    for (const std::string& one : axes) parsed.push_back(parse_sweep(one));
    return sweep_checkpoint(path("model"), parsed, options);
  }
};

// Every combination, the last axis fastest; numbers are those of a run that writes.
TEST_F(SweepTest, OfACheckpointMeasuresWhatQuantizingWould) {
  write_model();
  QuantizeCheckpointOptions options;
  options.plan.target = Dialect::octavo;
  const SweepResult seen = sweep({"recipe=fp8-1x128,mxfp8", "tile=16,64"}, options);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root), {}), 1);
  ASSERT_EQ(seen.points.size(), 4U);
  EXPECT_EQ(name_of(seen.points[1]), "fp8-1x128 tile 64");
  EXPECT_EQ(name_of(seen.points[2]), "mxfp8 tile 16");
  QuantizeCheckpointOptions one = recipe("mxfp8", Dialect::octavo);
  one.plan.tile = "16";
  const CheckpointReport written = run("out", one);
  EXPECT_EQ(seen.points[2].bytes, written.bytes_after);
  EXPECT_EQ(seen.points[2].bits_per_value, written.bits_per_weight);
  // 8 bits and a byte, or 4 bytes, for every 16 or 64.
  EXPECT_DOUBLE_EQ(seen.points[2].bits_per_value, 8.5);
  EXPECT_DOUBLE_EQ(seen.points[1].bits_per_value, 8.5);
  EXPECT_GT(seen.points[0].seconds, 0);
}

TEST_F(SweepTest, WhatATargetCannotHoldIsSaid) {
  write_model();
  const SweepResult seen = sweep({"recipe=fp8-1x128,mxfp8", "tile=32"});
  EXPECT_NE(seen.points[0].why_not.find("does not support"), std::string::npos);
  EXPECT_EQ(seen.points[1].why_not, "");
  // Where it can hold none of them, that is an error.
  EXPECT_THROW((void)sweep({"recipe=mxfp8,nvfp4", "tile=64,128"}), Error);
}

TEST(Sweep, OfAnArray) {
  std::vector<float> values(64 * 256);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(std::sin(static_cast<float>(i)), static_cast<int>(i / 16 % 24));
  const View view = value_view(values.data(), DType::f32, {64, 256});
  const SweepResult seen =
      sweep_array(view, {parse_sweep("tile=16,32,128"), parse_sweep("format=e4m3fn,auto")},
                  {.recipe = "mxfp8"});
  ASSERT_EQ(seen.points.size(), 6U);
  EXPECT_EQ(seen.points[0].bytes, 64U * 256 + 64 * 16);
  // Magnitudes change every 16 values: larger blocks have more error.
  EXPECT_GT(seen.points[0].sqnr, seen.points[4].sqnr);
  for (std::size_t i = 0; i < 6; i += 2) EXPECT_GE(seen.points[i + 1].sqnr, seen.points[i].sqnr);
  EXPECT_TRUE(best_of(seen)[4] || best_of(seen)[5]);  // of fewest bits
}

TEST(Sweep, OfAnArrayHasNoWeightedErrors) {
  std::vector<float> values(128, 1.0F);
  const SweepResult seen = sweep_array(value_view(values.data(), DType::f32, {2, 64}),
                                       {parse_sweep("scale-policy=mse,wmse")}, {.recipe = "nvfp4"});
  EXPECT_EQ(seen.points[0].why_not, "");
  EXPECT_NE(seen.points[1].why_not.find("an array does not say them"), std::string::npos)
      << seen.points[1].why_not;
}

TEST(Sweep, AxesAreChecked) {
  const auto refused = [](const std::string& typed, const std::string& why) {
    const std::string message = message_of([&] { (void)parse_sweep(typed); });
    EXPECT_NE(message.find(why), std::string::npos) << typed << ": " << message;
  };
  refused("tile", "OPTION=VALUE");
  refused("tiles=16", "expected one of recipe, format, tile");
  refused("tile=16,", "empty");
  refused("tile=16,16", "twice");
  refused("tile=0", "[tile]");
  refused("tile=99999999999999999999", "[tile]");
  refused("recipe=mxfp9", "[preset]");
  refused("format=e9", "is not a format");
  std::vector<float> values(32);
  const View view = value_view(values.data(), DType::f32, {32});
  EXPECT_THROW((void)sweep_array(view, {}), Error);
  EXPECT_THROW((void)sweep_array(view, {parse_sweep("tile=16")}), Error) << "no recipe";
  EXPECT_THROW((void)sweep_array(view, {parse_sweep("tile=16"), parse_sweep("tile=32")},
                                 {.recipe = "mxfp8"}),
               Error);
}

TEST(Sweep, TheBestAreThoseThatNoneBeats) {
  SweepResult sweep;
  const auto add = [&](double bits, double sqnr) {
    sweep.points.push_back({.bits_per_value = bits, .sqnr = sqnr});
  };
  add(8, 30);
  add(8, 31);  // as small and better than the first
  add(4, 18);
  add(9, 31);  // larger than the second and no better
  add(4.5, 21);
  sweep.points.push_back({.why_not = "cannot"});
  EXPECT_EQ(best_of(sweep), (std::vector<bool>{false, true, true, false, true, false}));
}

// A NaN poisons its tile: the larger the tile, the fewer values have an error at all.
TEST(Sweep, PointsThatLeaveValuesOutAreNotBest) {
  std::vector<float> values(1024);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
  const auto swept = [&] {
    return sweep_array(value_view(values.data(), DType::f32, {1024}), {parse_sweep("tile=1,512")},
                       {.recipe = "fp8-1x128"});
  };
  EXPECT_EQ(best_of(swept())[1], true);  // of fewer bits
  values[3] = std::nanf("");
  const SweepResult seen = swept();
  EXPECT_EQ(seen.points[0].uncounted, 0);
  EXPECT_EQ(seen.points[1].uncounted, 511);
  EXPECT_EQ(best_of(seen), (std::vector<bool>{true, false}));
  EXPECT_NE(json_of(seen).find("\"uncounted\": 511"), std::string::npos);
  std::ranges::fill(values, std::nanf(""));
  EXPECT_EQ(best_of(swept()), (std::vector<bool>{false, false}));
}

TEST(Sweep, ThePageEscapesWhatItShows) {
  SweepResult sweep{.title = "<script>x", .axes = {{"recipe", {"a"}}, {"tile", {"16"}}}};
  sweep.points.push_back({.settings = {{"recipe", "<blink>"}, {"tile", "16"}},
                          .bits_per_value = 8.5,
                          .sqnr = 30,
                          .seconds = 1e-3});
  sweep.points.push_back({.settings = {{"recipe", "c"}, {"tile", "16"}}, .why_not = "<i>no"});
  const std::string page = html_of(sweep);
  EXPECT_EQ(page.find("<script>x"), std::string::npos);
  EXPECT_EQ(page.find("<blink>"), std::string::npos);
  EXPECT_EQ(page.find("<i>no"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace octavo
