#include "octavo/recipe/module_quantizers.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

std::string mismatch(const Recipe& made_with, const Recipe& current) {
  try {
    check_weight_recipe("Linear.weight", made_with, current);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return "";
}

struct Heard {
  std::vector<std::string> texts;
  ModuleQuantizers module{{.warn = [this](std::string_view text) { texts.emplace_back(text); }}};
};

TEST(ModuleQuantizers, WeightsOfAnotherClass) {
  const std::string text = mismatch(MXFP8BlockScaling{}, DelayedScaling{});
  EXPECT_TRUE(text.starts_with(
      "Recipe mismatch for Linear.weight: Weight was initialized with MXFP8BlockScaling, but "
      "current recipe is DelayedScaling. "))
      << text;
  EXPECT_NE(mismatch(Float8BlockScaling{}, DelayedScaling{}), "");
  EXPECT_NE(mismatch(DelayedScaling{}, Float8CurrentScaling{}), "");
  EXPECT_EQ(mismatch(MXFP8BlockScaling{}, MXFP8BlockScaling{}), "");
}

TEST(ModuleQuantizers, WeightsOfTheSameClass) {
  // What concerns gradients only does not matter to weights; tiles do.
  EXPECT_EQ(mismatch(MXFP8BlockScaling{}, MXFP8BlockScaling{.fp8_format = RecipeFormat::HYBRID}),
            "");
  EXPECT_EQ(mismatch(DelayedScaling{}, DelayedScaling{.margin = 2}), "");
  const std::string text =
      mismatch(MXFP8BlockScaling{}, MXFP8BlockScaling{.enable_2d_quantization = true});
  EXPECT_NE(text.find("current recipe is (recipe_type=MXFP8BlockScaling, margin=0, format=E4M3, "
                      "enable_2d_quantization=True)"),
            std::string::npos)
      << text;
}

TEST(ModuleQuantizers, ARequestedChangeIsNoNews) {
  Heard heard;
  EXPECT_TRUE(heard.module.use(DelayedScaling{}));
  EXPECT_TRUE(heard.module.use(MXFP8BlockScaling{}, {}, true));
  EXPECT_TRUE(heard.texts.empty());
}

TEST(ModuleQuantizers, StateThatIsNotUsedIsReportedOnce) {
  Heard heard;
  heard.module.warn_unused_state(DelayedScaling{});
  EXPECT_TRUE(heard.texts.empty());
  for (int i = 0; i < 2; ++i) heard.module.warn_unused_state(MXFP8BlockScaling{});
  ASSERT_EQ(heard.texts.size(), 1U);
  EXPECT_TRUE(heard.texts[0].starts_with(
      "Loaded state of DelayedScaling is not used by MXFP8BlockScaling in Linear. "))
      << heard.texts[0];
}

TEST(ModuleQuantizers, AChangeIsReportedOnce) {
  Heard heard;
  EXPECT_EQ(heard.module.forward(), nullptr);
  EXPECT_TRUE(heard.module.use(DelayedScaling{}));
  EXPECT_FALSE(heard.module.use(DelayedScaling{}));
  EXPECT_TRUE(heard.texts.empty());
  EXPECT_EQ(heard.module.at("scaling_fwd")->size(), 3U);
  EXPECT_EQ(heard.module.at("scaling_bwd")->size(), 2U);
  EXPECT_EQ(heard.module.at("scaling_bwd")->at(0).scaling().format, e5m2);
  EXPECT_TRUE(heard.module.use(MXFP8BlockScaling{}));
  EXPECT_FALSE(heard.module.use(MXFP8BlockScaling{}));
  EXPECT_EQ(heard.texts,
            (std::vector<std::string>{"Recipe type changed from DelayedScaling to "
                                      "MXFP8BlockScaling. Replacing quantizers for Linear."}));
  // There and back again, and the same way a second time: no text comes twice.
  EXPECT_TRUE(heard.module.use(DelayedScaling{}));
  EXPECT_TRUE(heard.module.use(MXFP8BlockScaling{}));
  EXPECT_EQ(heard.texts.size(), 2U);
}

TEST(ModuleQuantizers, ChangesWithinAClassAreNoticed) {
  Heard heard;
  (void)heard.module.use(Float8BlockScaling{});
  EXPECT_TRUE(heard.module.use(Float8BlockScaling{.w_block_scaling_dim = 1}));
  EXPECT_EQ(heard.module.forward()->of(TensorRole::weight).scaling().tile, (Tile{1, 128}));
  EXPECT_TRUE(heard.module.use(
      Float8BlockScaling{.fp8_format = RecipeFormat::HYBRID, .w_block_scaling_dim = 1}));
  EXPECT_EQ(heard.module.backward()->of(TensorRole::grad_output).scaling().format, e5m2);
  ASSERT_EQ(heard.texts.size(), 2U);
  EXPECT_EQ(heard.texts[0],
            "Recipe changed from (recipe_type=Float8BlockScaling, format=E4M3) to "
            "(recipe_type=Float8BlockScaling, format=E4M3, w_block_scaling_dim=1). Replacing "
            "quantizers for Linear.");
}

TEST(ModuleQuantizers, AMarginTakesEffectAndTheHistoryStays) {
  Heard heard;
  (void)heard.module.use(DelayedScaling{.amax_history_len = 4});
  heard.module.forward()->set_amaxes(std::vector<float>{7, 0, 0});
  heard.module.forward()->update();
  EXPECT_TRUE(heard.module.use(DelayedScaling{.margin = 3, .amax_history_len = 4}));
  const QuantizerSet& set = *heard.module.forward();
  EXPECT_EQ(set.inv_scale().span<float>()[0], 64.0F);
  heard.module.forward()->set_amaxes(std::vector<float>{1, 0, 0});
  heard.module.forward()->update();
  EXPECT_EQ(set.inv_scale().span<float>()[0], 8.0F);  // 448 / 7 / 2^3
}

TEST(ModuleQuantizers, AWarningThatThrowsChangesNothing) {
  int calls = 0;
  bool strict = true;
  ModuleQuantizers module({.warn = [&](std::string_view) {
    ++calls;
    if (strict) throw std::runtime_error("warnings are errors here");
  }});
  (void)module.use(DelayedScaling{});
  const auto before = module.forward();
  EXPECT_THROW((void)module.use(MXFP8BlockScaling{}), std::runtime_error);
  EXPECT_EQ(module.forward(), before);
  strict = false;
  EXPECT_TRUE(module.use(MXFP8BlockScaling{}));  // and it is reported again
  EXPECT_EQ(calls, 2);
}

TEST(ModuleQuantizers, KeysAreChecked) {
  const Heard heard;
  EXPECT_THROW((void)heard.module.at("scaling"), Error);
}

}  // namespace
}  // namespace octavo
