#include "octavo/pipeline/mix/mix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "octavo/pipeline/pipeline_testing_internal.h"
#include "octavo/report/metrics.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

class MixTest : public PipelineTest {
 protected:
  void SetUp() override {
    PipelineTest::SetUp();
    write_model();
  }
  [[nodiscard]] MixChoice choose(const MixBudget& budget,
                                 const QuantizeCheckpointOptions& options = {}) const {
    return choose_mix(path("model"), budget, options);
  }
  [[nodiscard]] std::string refused(const MixBudget& budget,
                                    ErrorCode code = ErrorCode::invalid_argument,
                                    const QuantizeCheckpointOptions& options = {}) const {
    return message_of([&] { (void)choose(budget, options); }, code);
  }
  [[nodiscard]] static std::int64_t elements_of(const MixResult& mix) {
    std::int64_t all = 0;
    for (const MixUnit& unit : mix.units) all += unit.elements;
    return all;
  }
};

// Q, K and V are one part, gate and up another; down_proj stands alone: three in each layer.
TEST_F(MixTest, PartsAreWhatServersLoadAsOne) {
  const MixChoice mix = choose({.bits_per_weight = 6});
  ASSERT_EQ(mix.result->units.size(), 6U);
  EXPECT_EQ(mix.result->units[1].name, "model.layers.0.mlp.gate_proj");
  EXPECT_EQ(mix.result->units[1].elements, 2 * 1280 * 256);
  EXPECT_EQ(mix.result->units[2].name, "model.layers.0.self_attn.k_proj");
  EXPECT_EQ(mix.result->units[2].elements, 512 * 256);
  EXPECT_EQ(elements_of(*mix.result), 2 * (512 + 3 * 1280) * 256);
}

// The bytes are those of the output that quantize writes, and within the budget.
TEST_F(MixTest, BudgetsAreKept) {
  for (const double bits : support::some_of<double>({4.3, 4.5, 5.0, 6.5, 9.0, 12.0})) {
    const MixChoice mix = choose({.bits_per_weight = bits});
    EXPECT_LE(mix.result->chosen.bits_per_weight, bits);
    QuantizeCheckpointOptions options;
    options.plan = mix.plan;
    const CheckpointReport report = run(text("out-", bits), options);
    EXPECT_EQ(report.bytes_after, mix.result->chosen.bytes);
    const MixChoice fit = choose({.bytes = mix.result->chosen.bytes});
    EXPECT_EQ(fit.plan.recipe_for, mix.plan.recipe_for);
    EXPECT_EQ(fit.plan.recipe, mix.plan.recipe);
  }
}

TEST_F(MixTest, NeverWorseThanOneRecipeForAll) {
  const MixChoice any = choose({.bits_per_weight = 8});
  ASSERT_GE(any.result->uniform.size(), 5U);
  for (const MixPoint& uniform : any.result->uniform) {
    const MixChoice mix = choose({.bytes = uniform.bytes});
    EXPECT_LE(mix.result->chosen.error, uniform.error) << uniform.recipe;
    EXPECT_LE(mix.result->chosen.bytes, uniform.bytes);
  }
}

// Errors of parts are sums of what the reports of quantize say of their matrices.
TEST_F(MixTest, ErrorsAreThoseOfTheReports) {
  const MixChoice mix = choose({.bits_per_weight = 6, .candidates = {"nvfp4", "mxfp8"}});
  for (const char* const name : {"nvfp4", "mxfp8"}) {
    const CheckpointReport report = run(text("out-", name), recipe(name));
    std::map<std::string, double> errors;
    for (const TensorReport& tensor : report.tensors)
      if (tensor.measured) errors[tensor.module] = std::pow(tensor.metrics.relative_l2, 2);
    for (const MixUnit& unit : mix.result->units) {
      double wanted = 0;
      const std::string layer = unit.name.substr(0, unit.name.rfind('.'));
      const bool is_down = unit.name.ends_with("down_proj");
      for (const auto& [module, error] : errors)
        if (module.starts_with(layer) && module.ends_with("down_proj") == is_down) wanted += error;
      const auto at = std::find(unit.recipes.begin(), unit.recipes.end(), name);
      ASSERT_NE(at, unit.recipes.end());
      // Both from the same sums of squares: a root and its square, each rounded.
      EXPECT_NEAR(unit.errors[static_cast<std::size_t>(at - unit.recipes.begin())] / wanted, 1,
                  1e-12);
    }
  }
}

TEST_F(MixTest, WhatTheUserSaysStays) {
  QuantizeCheckpointOptions options;
  options.plan.exclude = {"layers\\.0\\.mlp"};
  options.plan.recipe_for = {{"layers\\.1\\.mlp\\.down_proj", "mxfp6"}};
  const MixChoice mix = choose({.bits_per_weight = 5}, options);
  ASSERT_EQ(mix.result->units.size(), 4U);
  for (const MixUnit& unit : mix.result->units)
    EXPECT_EQ(unit.recipe == "mxfp6", unit.name == "model.layers.1.mlp.down_proj") << unit.name;
  EXPECT_EQ(mix.plan.recipe_for.front(), options.plan.recipe_for.front());
  EXPECT_EQ(mix.plan.exclude, options.plan.exclude);
}

// DeepSeek's loaders have one scheme for a model: the mix is of that and weights as they are.
TEST_F(MixTest, OnlyWhatTheTargetHoldsTogether) {
  QuantizeCheckpointOptions options;
  options.plan.target = Dialect::deepseek;
  const MixChoice mix = choose({.bits_per_weight = 10}, options);
  EXPECT_EQ(mix.result->left_out.size(), 1U);
  std::map<std::string, int> recipes;
  for (const MixUnit& unit : mix.result->units) ++recipes[unit.recipe];
  EXPECT_EQ(recipes.size(), 2U);
  EXPECT_EQ(recipes.count("none"), 1U);
  options.plan = mix.plan;
  EXPECT_EQ(run("out", options).bytes_after, mix.result->chosen.bytes);
}

TEST_F(MixTest, WhatCannotBeMetSaysTheLeast) {
  const std::string bits = refused({.bits_per_weight = 3});
  EXPECT_NE(bits.find("the least that these recipes can is 4.1"), std::string::npos) << bits;
  // What it says is enough.
  const std::string number = bits.substr(bits.find("can is ") + 7);
  EXPECT_NO_THROW((void)choose({.bits_per_weight = std::stod(number)}));
  const std::string bytes = refused({.bytes = 1000});
  const std::string least = bytes.substr(bytes.find("can is ") + 7);
  EXPECT_NO_THROW((void)choose({.bytes = std::stoull(least)}));
  EXPECT_THROW((void)choose({.bytes = std::stoull(least) - 1}), Error);
}

TEST_F(MixTest, BudgetsAndCandidatesAreChecked) {
  EXPECT_NE(refused({}).find("got no budget"), std::string::npos);
  EXPECT_NE(refused({.bits_per_weight = 5, .bytes = 7}).find("got both"), std::string::npos);
  EXPECT_NE(refused({.bits_per_weight = 65}).find("at most 64"), std::string::npos);
  EXPECT_NE(refused({.bits_per_weight = 5, .candidates = {"fp4"}}).find("'fp4'"),
            std::string::npos);
  EXPECT_NE(refused({.bits_per_weight = 5, .candidates = {"nvfp4", "nvfp4"}}).find("twice"),
            std::string::npos);
  EXPECT_NE(refused({.bits_per_weight = 5, .candidates = {"none"}}).find("no weight"),
            std::string::npos);
  EXPECT_NE(refused({.bits_per_weight = 5}, ErrorCode::invalid_argument, recipe("nvfp4"))
                .find("got the recipe 'nvfp4' and a budget"),
            std::string::npos);
  EXPECT_EQ(parse_bits_per_weight("4.5bpw"), 4.5);
  EXPECT_EQ(parse_bits_per_weight("5"), 5);
  for (const char* const bad : {"", "bpw", "4.5 bpw", "-1", "0", "nan", "inf", "65", "4,5"})
    EXPECT_THROW((void)parse_bits_per_weight(bad), Error) << bad;
}

TEST_F(MixTest, WithAllTheBitsNothingIsQuantized) {
  const MixChoice mix = choose({.bits_per_weight = 16});
  EXPECT_EQ(mix.result->chosen.error, 0);
  for (const MixUnit& unit : mix.result->units) EXPECT_EQ(unit.recipe, "none");
}

// Recipes that are several presets.
TEST_F(MixTest, MixedRecipesAreSpelledOut) {
  const CheckpointReport report = run("out", recipe("attention-fp8"));
  for (const TensorReport& tensor : report.tensors) {
    if (tensor.preset.empty()) continue;
    const bool attention = tensor.name.find("self_attn") != std::string::npos;
    EXPECT_EQ(tensor.preset, attention ? "fp8-channel" : "nvfp4") << tensor.name;
  }
  const std::string none = refusal("other", ErrorCode::invalid_argument, recipe("experts-nvfp4"));
  EXPECT_NE(none.find("has no experts"), std::string::npos) << none;
}

}  // namespace
}  // namespace octavo
