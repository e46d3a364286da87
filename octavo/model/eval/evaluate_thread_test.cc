#include <gtest/gtest.h>

#include <vector>

#include "octavo/model/eval/eval_testing_internal.h"
#include "octavo/model/eval/evaluate_internal.h"

namespace octavo::eval {
namespace {

TEST(EvaluateThreads, ChangeNoBit) {
  const testing::HandmadeModel original("original", 0.0F, 3000), model("model", 0.1F, 3000);
  const std::vector<const EvalModel*> models{&original, &model};
  EvaluateOptions options{
      .against = "original", .texts = {testing::random_text("a", 1500)}, .window = 100};
  std::string first;
  for (const int threads : {1, 2, 7}) {
    options.threads = threads;
    ModelEvaluation seen = evaluate_models(models, options);
    seen.seconds = 0;
    if (first.empty()) first = json_of(seen);
    EXPECT_EQ(json_of(seen), first) << threads;
  }
}

}  // namespace
}  // namespace octavo::eval
