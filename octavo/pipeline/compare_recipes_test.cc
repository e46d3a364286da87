#include "octavo/pipeline/compare_recipes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "octavo/checkpoint/verify/loader_verdict.h"
#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

class CompareRecipesTest : public PipelineTest {
 protected:
  [[nodiscard]] RecipeComparison compare(const std::vector<std::string>& recipes,
                                         const QuantizeCheckpointOptions& options = {}) const {
    return compare_recipes(path("model"), recipes, options);
  }
};

// The numbers of each are those of a run that writes, and nothing is written.
TEST_F(CompareRecipesTest, MeasuresWhatQuantizingWould) {
  write_model();
  const std::vector<std::string> recipes{"fp8-channel", "mxfp8", "nvfp4"};
  const RecipeComparison seen = compare(recipes);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root), {}), 1);
  ASSERT_EQ(seen.recipes.size(), 3U);
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    const CheckpointReport written = run(recipes[i], recipe(recipes[i]));
    const CheckpointReport& report = seen.recipes[i].report;
    EXPECT_EQ(report.bytes_after, written.bytes_after);
    EXPECT_EQ(report.bits_per_weight, written.bits_per_weight);
    ASSERT_EQ(report.tensors.size(), written.tensors.size());
    for (std::size_t t = 0; t < report.tensors.size(); ++t) {
      EXPECT_EQ(report.tensors[t].name, written.tensors[t].name);
      EXPECT_EQ(report.tensors[t].metrics.sums, written.tensors[t].metrics.sums);
    }
  }
}

// What is said of a plan is what verify finds in the folder.
TEST_F(CompareRecipesTest, LoadersAreThoseThatVerifyFinds) {
  write_model();
  // Of a known model type tensors would be missing.
  save("model/config.json", R"({"architectures": ["SomeForCausalLM"], "model_type": "some"})");
  for (const Dialect target : {Dialect::compressed_tensors, Dialect::modelopt, Dialect::deepseek}) {
    QuantizeCheckpointOptions options;
    options.plan.target = target;
    const RecipeComparison seen =
        compare({"fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}, options);
    for (const RecipeOutcome& outcome : seen.recipes) {
      if (!outcome.why_not.empty()) continue;
      const std::string out = outcome.recipe + std::string(name_of(target));
      (void)run(out, recipe(outcome.recipe, target));
      const VerifyOptions servers{
          .loaders = {Loader::vllm, Loader::transformers, Loader::sglang, Loader::trtllm}};
      const std::vector<Finding> findings = verify(CheckpointReader(path(out)), servers);
      EXPECT_EQ(outcome.loads, verdict_of(servers.loaders, findings).loads) << out;
    }
  }
}

TEST_F(CompareRecipesTest, ARecipeThatTheTargetCannotHoldSaysWhy) {
  write_model();
  QuantizeCheckpointOptions options;
  options.plan.target = Dialect::deepseek;
  const RecipeComparison seen = compare({"nvfp4", "fp8-block"}, options);
  EXPECT_NE(seen.recipes[0].why_not, "");
  EXPECT_TRUE(seen.recipes[0].report.tensors.empty());
  EXPECT_EQ(seen.recipes[1].why_not, "");
  EXPECT_NE(message_of([&] { (void)compare({"nvfp4"}, options); }, ErrorCode::unsupported), "");
  EXPECT_NE(message_of([&] { (void)compare({}); }, ErrorCode::invalid_argument), "");
  EXPECT_NE(message_of(
                [&] {
                  (void)compare({"fp8", "fp8"});
                },
                ErrorCode::invalid_argument)
                .find("twice"),
            std::string::npos);
}

TEST_F(CompareRecipesTest, ProgressIsOfAllRecipes) {
  write_model();
  QuantizeCheckpointOptions options;
  options.every_row_block = true;
  options.threads = 1;
  std::uint64_t last = 0, total = 0;
  options.on_progress = [&](const Progress& progress) {
    EXPECT_GE(progress.bytes_done, last);
    last = progress.bytes_done;
    total = progress.bytes_total;
    return true;
  };
  (void)compare({"fp8-channel", "mxfp8"}, options);
  EXPECT_EQ(last, total);
  options.on_progress = [](const Progress&) { return false; };
  EXPECT_THROW((void)compare({"fp8-channel", "mxfp8"}, options), Error);
}

}  // namespace
}  // namespace octavo
