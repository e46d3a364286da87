#include "octavo/report/model_evaluation.h"

#include <gtest/gtest.h>

#include "octavo/base/json/json.h"

namespace octavo {
namespace {

ModelEvaluation sample() {
  ModelEvaluation out{.title = "model", .against = "model", .window = 64, .tokens = 500};
  out.models.push_back({.model = "model", .is_original = true});
  for (const char* name : {"<b>a</b>", "b"}) {
    EvaluatedModel model{.model = name};
    model.total = {
        .tokens = 500,
        .scored = 490,
        .log_loss = {2.0, 0.1},
        .perplexity = {7.389, 0.7},
        .kl = {.mean = {0.01, 0.001}, .median = 0.002, .percentile_99 = 0.1, .largest = 1},
        .agreement = {0.95, 0.01},
        .excess_loss = {0.02, 0.003}};
    for (int layer = 0; layer < 5; ++layer)
      model.total.layers.push_back({.cosine = 1 - 0.001 * layer, .relative_error = 0.01 * layer});
    out.models.push_back(model);
  }
  return out;
}

TEST(ModelEvaluation, IsJson) {
  const Json json = parse_json(json_of(sample()), "json");
  EXPECT_EQ(json["verb"].string_or(""), "evaluate");
  ASSERT_EQ(json["models"].elements().size(), 3U);
  const Json& total = json["models"].elements()[1]["total"];
  EXPECT_EQ(total["perplexity"]["standard_error"].number_or(0), 0.7);
  EXPECT_EQ(total["kl"]["percentile_99"].number_or(0), 0.1);
  EXPECT_EQ(total["layers"].elements()[4]["relative_error"].number_or(0), 0.04);
  EXPECT_FALSE(json["models"].elements()[0]["total"].has("kl")) << "the original has none";
  EXPECT_TRUE(json["models"].elements()[0]["total"]["perplexity"]["value"].is_null());
}

TEST(ModelEvaluation, IsAPage) {
  const std::string page = html_of(sample());
  EXPECT_EQ(page.find("<b>a</b>"), std::string::npos) << "names are untrusted";
  EXPECT_NE(page.find("the original"), std::string::npos);
  EXPECT_NE(page.find("after layer"), std::string::npos);
  EXPECT_NE(page.find("the largest step is layer 3"), std::string::npos);
  // Without an original there is nothing along the layers.
  ModelEvaluation alone = sample();
  alone.against.clear();
  EXPECT_EQ(html_of(alone).find("after layer"), std::string::npos);
}

TEST(ModelEvaluation, NoErrorAtAllIsSaid) {
  ModelEvaluation same = sample();
  for (EvaluatedModel& model : same.models)
    for (LayerDifference& layer : model.total.layers) layer = {.cosine = 1, .relative_error = 0};
  EXPECT_NE(html_of(same).find("after every layer"), std::string::npos);
}

}  // namespace
}  // namespace octavo
