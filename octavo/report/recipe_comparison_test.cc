#include "octavo/report/recipe_comparison.h"

#include <gtest/gtest.h>

#include "octavo/base/json/json.h"
#include "octavo/report/report_testing_internal.h"

namespace octavo {
namespace {

using namespace std::string_literals;

RecipeComparison sample() {
  RecipeComparison out{
      .title = "sample", .source = "models/sample", .target = "compressed-tensors"};
  for (const char* recipe : {"mxfp4", "mxfp8"}) {
    RecipeOutcome outcome{.recipe = recipe};
    outcome.report = testing::sample_report(2, recipe);
    out.bytes_before = outcome.report.bytes_before;
    outcome.loads = {"vllm"};
    outcome.does_not_load = {{"sglang", "it has no MXFP8 in this dialect"}};
    out.recipes.push_back(outcome);
  }
  RecipeOutcome cannot{.recipe = "nvfp4", .why_not = "no weight of this model"};
  out.recipes.push_back(cannot);
  return out;
}

TEST(RecipeComparison, PageHasEveryRecipeAndTensor) {
  const std::string html = html_of(sample());
  for (const char* what : {">mxfp4<", ">mxfp8<", ">nvfp4<", "no weight of this model",
                           "it has no MXFP8 in this dialect",
                           "model.<wbr>layers.<wbr>1.<wbr>mlp."
                           "<wbr>down_proj.<wbr>weight",
                           "it has seen no data"})
    EXPECT_NE(html.find(what), std::string::npos) << what;
}

TEST(RecipeComparison, NothingInANameIsMarkup) {
  RecipeComparison comparison = sample();
  const std::string evil = "</td><script>alert(1)</script>\"'\0\xff"s;
  comparison.title = comparison.source = comparison.target = evil;
  for (RecipeOutcome& outcome : comparison.recipes) {
    outcome.recipe = evil;
    outcome.loads = {evil};
    outcome.does_not_load = {{evil, evil}};
    for (TensorReport& tensor : outcome.report.tensors)
      tensor.name = tensor.module = tensor.preset = evil;
  }
  comparison.recipes.back().why_not = evil;
  const std::string html = html_of(comparison);
  EXPECT_EQ(html.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(html.find('\0'), std::string::npos);
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "url(", "@import"})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
}

TEST(RecipeComparison, JsonSaysTheSame) {
  const RecipeComparison comparison = sample();
  const Json json = parse_json(json_of(comparison), "comparison");
  ASSERT_EQ(json["recipes"].elements().size(), 3U);
  const Json& first = json["recipes"].elements()[0];
  EXPECT_EQ(first["recipe"].string_or(""), "mxfp4");
  EXPECT_EQ(first["median_sqnr"].number_or(0), median_sqnr(comparison.recipes[0].report));
  EXPECT_EQ(first["tensors"].elements().size(), 14U);
  EXPECT_EQ(json["recipes"].elements()[2]["why_not"].string_or(""), "no weight of this model");
}

TEST(RecipeComparison, OfNothing) {
  EXPECT_NE(html_of(RecipeComparison{}).find("</html>"), std::string::npos);
  RecipeComparison plain;
  plain.recipes.push_back({.recipe = "mxfp8"});
  EXPECT_NE(html_of(plain).find("nothing is quantized"), std::string::npos);
}

}  // namespace
}  // namespace octavo
