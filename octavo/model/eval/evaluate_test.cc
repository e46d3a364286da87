#include "octavo/model/eval/evaluate_internal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/model/eval/eval_testing_internal.h"
#include "tests/support/sanitizer.h"

namespace octavo::eval {
namespace {

using testing::HandmadeModel;
using testing::PlainToken;
using testing::random_text;

std::vector<std::int32_t> piece(const std::vector<std::int32_t>& ids, std::size_t first,
                                std::size_t count) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(first),
          ids.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double error_of_mean(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += std::pow(value - mean(values), 2);
  const auto n = static_cast<double>(values.size());
  return std::sqrt(squares / (n - 1) / n);
}

// A logit is a sum of 24 products of f32, each of at most about 20: 24 * 2^-24 * 20 = 3e-5 in the
// worst case, and a hundredth of that on average. Means over hundreds of tokens are nearer still.
constexpr double kNear = 1e-6;

TEST(Evaluate, IsThePlainDefinition) {
  const HandmadeModel original("original"), model("model", 0.1F);
  const std::vector<const EvalModel*> models{&original, &model};
  const std::vector<EvalText> texts{random_text("a", 530), random_text("b", 100, 4)};
  const ModelEvaluation seen = evaluate_models(
      models, {.against = "original", .texts = texts, .window = 64, .max_memory = 1 << 30});
  ASSERT_EQ(seen.models.size(), 2U);
  EXPECT_TRUE(seen.models[0].is_original);
  EXPECT_EQ(seen.tokens, 630);
  std::vector<double> loss, kl, agrees, excess;
  for (const EvalText& text : texts) {
    const std::vector<std::int32_t> ids = model.tokenize(text.content);
    for (std::size_t at = 0; at < ids.size(); at += 64) {
      const auto window = piece(ids, at, std::min<std::size_t>(64, ids.size() - at));
      const auto own = testing::plain_tokens(original, original, window);
      const auto other = testing::plain_tokens(original, model, window);
      for (std::size_t i = 0; i < own.size(); ++i) {
        loss.push_back(other[i].loss);
        kl.push_back(other[i].kl);
        agrees.push_back(other[i].top == own[i].top ? 1 : 0);
        excess.push_back(other[i].loss - own[i].loss);
      }
    }
  }
  const TextEvaluation& total = seen.models[1].total;
  EXPECT_EQ(total.scored, static_cast<std::int64_t>(loss.size()));
  EXPECT_NEAR(total.log_loss.value, mean(loss), kNear * mean(loss));
  EXPECT_NEAR(total.log_loss.error, error_of_mean(loss), kNear * error_of_mean(loss));
  EXPECT_NEAR(total.perplexity.value / std::exp(mean(loss)), 1.0, kNear * mean(loss));
  EXPECT_NEAR(total.kl.mean.value, mean(kl), kNear * mean(kl));
  EXPECT_NEAR(total.kl.mean.error, error_of_mean(kl), kNear * error_of_mean(kl));
  EXPECT_NEAR(total.kl.largest, *std::max_element(kl.begin(), kl.end()), 1e-5 * total.kl.largest);
  EXPECT_EQ(total.agreement.value, mean(agrees));
  EXPECT_NEAR(total.agreement.error, error_of_mean(agrees), 1e-12);
  EXPECT_NEAR(total.excess_loss.value, mean(excess), 1e-6);
  EXPECT_GT(total.kl.mean.value, 0.01) << "the models should differ";
  // The whole is the mean of its parts, by their tokens.
  double sum = 0;
  for (const TextEvaluation& text : seen.models[1].texts)
    sum += text.log_loss.value * static_cast<double>(text.scored);
  EXPECT_NEAR(sum / static_cast<double>(total.scored), total.log_loss.value, 1e-12);
}

TEST(Evaluate, LayersAreHeldAgainstTheOriginal) {
  const HandmadeModel original("original"), model("model", 0.1F);
  const std::vector<const EvalModel*> models{&original, &model};
  const EvalText text = random_text("a", 64);
  const ModelEvaluation seen =
      evaluate_models(models, {.against = "original", .texts = {text}, .window = 64});
  const auto ids = original.tokenize(text.content);
  std::vector<float> before(64 * 24), after(before.size());
  original.embed(ids, value_view(before.data(), DType::f32, {64, 24}));
  model.embed(ids, value_view(after.data(), DType::f32, {64, 24}));
  ASSERT_EQ(seen.models[1].total.layers.size(), 4U);
  for (std::size_t layer = 0; layer < 4; ++layer) {
    if (layer > 0) {
      original.pass_window(before.data(), 64, static_cast<std::int64_t>(layer) - 1);
      model.pass_window(after.data(), 64, static_cast<std::int64_t>(layer) - 1);
    }
    double cosine = 0, relative2 = 0;
    for (std::size_t t = 0; t < 64; ++t) {
      double xy = 0, x2 = 0, y2 = 0, e2 = 0;
      for (std::size_t i = t * 24; i < t * 24 + 24; ++i) {
        const double x = static_cast<double>(before[i]), y = static_cast<double>(after[i]);
        xy += x * y;
        x2 += x * x;
        y2 += y * y;
        e2 += (x - y) * (x - y);
      }
      cosine += xy / std::sqrt(x2 * y2) / 64;
      relative2 += e2 / x2 / 64;
    }
    EXPECT_NEAR(seen.models[1].total.layers[layer].cosine, cosine, 1e-12) << layer;
    EXPECT_NEAR(seen.models[1].total.layers[layer].relative_error, std::sqrt(relative2), 1e-12);
  }
  EXPECT_TRUE(seen.models[0].total.layers.empty());
}

TEST(Evaluate, AModelIsNoFartherFromItselfThanZero) {
  const HandmadeModel original("original"), same("same");
  const std::vector<const EvalModel*> models{&original, &same};
  const ModelEvaluation seen =
      evaluate_models(models, {.against = "original", .texts = {random_text("a", 300)}});
  const TextEvaluation& total = seen.models[1].total;
  EXPECT_EQ(total.kl.mean.value, 0.0);
  EXPECT_EQ(total.agreement.value, 1.0);
  EXPECT_EQ(total.excess_loss.value, 0.0);
  for (const LayerDifference& layer : total.layers) {
    EXPECT_EQ(layer.cosine, 1.0);
    EXPECT_EQ(layer.relative_error, 0.0);
  }
}

std::string numbers_of(ModelEvaluation evaluation) {
  evaluation.seconds = 0;
  return json_of(evaluation);
}

TEST(Evaluate, MemoryChangesNoBit) {
  const HandmadeModel original("original", 0.0F, 9000), model("model", 0.1F, 9000);
  const std::vector<const EvalModel*> models{&original, &model};
  const std::size_t tokens = support::under_sanitizer() ? 2000 : 5000;
  EvaluateOptions options{
      .against = "original", .texts = {random_text("a", tokens)}, .window = 300};
  const std::string plenty = numbers_of(evaluate_models(models, options));
  // What head and layers take, less than that and the hidden states of both: 2 * tokens * 24 * 4.
  std::uint64_t least = 1 << 20;
  options.max_memory = least;
  while (true) {
    try {
      EXPECT_EQ(numbers_of(evaluate_models(models, options)), plenty) << options.max_memory;
      break;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      ASSERT_NE(std::string(error.what()).find("max_memory"), std::string::npos);
      options.max_memory += 1 << 20;
      ASSERT_LT(options.max_memory, std::uint64_t{1} << 30);
    }
  }
  EXPECT_GT(options.max_memory, least) << "too little memory should have been refused";
}

TEST(Evaluate, GoesOnFromTheLastLayer) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "octavo_eval_resume";
  std::filesystem::remove_all(folder);
  HandmadeModel original("original"), model("model", 0.1F);
  const std::vector<const EvalModel*> models{&original, &model};
  EvaluateOptions options{.against = "original", .texts = {random_text("a", 500)}, .window = 64};
  const std::string whole = numbers_of(evaluate_models(models, options));
  options.resume = folder.string();
  std::vector<std::int64_t> layers;
  model.on_layer_ = [&](std::int64_t layer) {
    layers.push_back(layer);
    if (layer == 1) fail(ErrorCode::io, "test", "the machine went away");
  };
  EXPECT_THROW((void)evaluate_models(models, options), Error);
  layers.clear();
  model.on_layer_ = [&](std::int64_t layer) { layers.push_back(layer); };
  EXPECT_EQ(numbers_of(evaluate_models(models, options)), whole);
  EXPECT_EQ(layers.front(), 1) << "the first layer was done";
  EXPECT_FALSE(std::filesystem::exists(folder)) << "nothing is left when all is done";
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Evaluate, RefusesTheStateOfAnother) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "octavo_eval_other";
  std::filesystem::remove_all(folder);
  HandmadeModel model("model");
  const std::vector<const EvalModel*> models{&model};
  EvaluateOptions options{.texts = {random_text("a", 500)}, .window = 64};
  options.resume = folder.string();
  model.on_layer_ = [](std::int64_t layer) {
    if (layer == 1) fail(ErrorCode::io, "test", "the machine went away");
  };
  EXPECT_THROW((void)evaluate_models(models, options), Error);
  model.on_layer_ = {};
  const auto refused = [&](const EvaluateOptions& other, const char* word) {
    try {
      (void)evaluate_models(models, other);
      ADD_FAILURE() << "expected an error about " << word;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  EvaluateOptions other = options;
  other.window = 32;
  refused(other, "window 64 there, 32 here");
  other = options;
  other.texts = {random_text("a", 500, 9)};
  refused(other, "texts");
  model.fingerprint_ = 8;
  refused(options, "models");
  model.fingerprint_ = 7;
  const std::string state = content_of(folder / "state.json");
  std::string old = state;
  old.replace(old.find("\"version\": 2"), 12, "\"version\": 1");
  std::ofstream(folder / "state.json") << old;
  refused(options, "a state of version 1, and this octavo reads version 2");
  std::ofstream(folder / "state.json") << state;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".f32") std::filesystem::resize_file(entry.path(), 100);
  refused(options, "damaged");
  std::filesystem::remove_all(folder);
}

// A folder of the user's own may have anything in it.
TEST(Evaluate, RemovesItsOwnFilesAlone) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "octavo_eval_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const char* const others[] = {"hidden-notes.f32", "hidden-1.f32",     "hidden-1-2-3.f32",
                                "hidden--1.f32",    "hidden-1-.f32",    "hidden-1-2.f32.old",
                                "hidden-0-1x.f32",  "my-hidden-0-1.f32"};
  for (const char* name : others) std::ofstream(folder / name) << "mine";
  std::ofstream(folder / "hidden-0-99.f32") << "of a run before";
  const HandmadeModel model("model");
  const std::vector<const EvalModel*> models{&model};
  (void)evaluate_models(models, {.texts = {random_text("a", 500)}, .resume = folder.string()});
  for (const char* name : others) EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  EXPECT_FALSE(std::filesystem::exists(folder / "hidden-0-99.f32"));
  EXPECT_FALSE(std::filesystem::exists(folder / "state.json"));
  std::filesystem::remove_all(folder);
}

TEST(Evaluate, KeepsItsStateUntilItIsToldToRemoveIt) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "octavo_eval_kept";
  std::filesystem::remove_all(folder);
  HandmadeModel model("model");
  const std::vector<const EvalModel*> models{&model};
  const EvaluateOptions options{
      .texts = {random_text("a", 500)}, .resume = folder.string(), .keep_state = true};
  const std::string first = numbers_of(evaluate_models(models, options));
  EXPECT_TRUE(std::filesystem::exists(folder / "state.json"));
  model.on_layer_ = [](std::int64_t) { ADD_FAILURE() << "all layers were done"; };
  EXPECT_EQ(numbers_of(evaluate_models(models, options)), first);
  remove_evaluation_state(folder.string());
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Evaluate, RefusesTextsThatSayNothing) {
  HandmadeModel model("model"), small("small", 0.0F, 100);
  const auto message = [](const EvalModel& of, const EvaluateOptions& options) {
    const std::vector<const EvalModel*> models{&of};
    try {
      (void)evaluate_models(models, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(model, {}).find("no text"), std::string::npos);
  EXPECT_NE(message(model, {.texts = {random_text("a", 1)}}).find("1 tokens"), std::string::npos);
  EXPECT_NE(message(model, {.texts = {random_text("a", 9)}, .window = 1}).find("window of 1"),
            std::string::npos);
  EXPECT_NE(message(small, {.texts = {random_text("a", 300)}}).find("has 100 rows"),
            std::string::npos);
  model.has_tokenizer_ = false;
  EXPECT_NE(message(model, {.texts = {random_text("a", 9)}}).find("no tokenizer"),
            std::string::npos);
  EXPECT_EQ(message(model, {.texts = {{.name = "ids", .ids = {{1, 2, 3}}}}}), "");
  const std::vector<const EvalModel*> two{&model, &small};
  EXPECT_THROW((void)evaluate_models(two, {.texts = {random_text("a", 9)}}), Error);
}

TEST(Evaluate, CanBeCancelled) {
  const HandmadeModel model("model");
  const std::vector<const EvalModel*> models{&model};
  int calls = 0;
  EvaluateOptions options{.texts = {random_text("a", 100)}};
  options.on_progress = [&](const Progress& progress) {
    EXPECT_GT(progress.bytes_total, 0U);
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
    return ++calls < 2;
  };
  EXPECT_THROW((void)evaluate_models(models, options), Error);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace octavo::eval
