#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf/gguf_testing_internal.h"
#include "octavo/model/eval/eval_testing_internal.h"
#include "octavo/model/eval/evaluate_internal.h"
#include "octavo/model/eval/input_sums_internal.h"
#include "octavo/model/eval/statistics_collector_internal.h"
#include "octavo/model/statistics/imatrix_file_internal.h"

namespace octavo::eval {
namespace {

using testing::HandmadeModel;
using testing::random_text;

std::string in_folder(const std::string& name) {
  return (std::filesystem::path(::testing::TempDir()) / name).string();
}

std::vector<float> random_rows(std::int64_t rows, std::int64_t width, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<std::size_t>(rows * width));
  for (float& value : out) value = normal(random);
  return out;
}

TEST(InputSums, AreThePlainMoments) {
  constexpr std::int64_t kRows = 300, kWidth = 37;  // the last block is not whole
  std::vector<float> x = random_rows(kRows, kWidth);
  InputSums sums(kWidth, {.block_hessians = true, .hessian = true});
  sums.add(value_view(x.data(), DType::f32, {100, kWidth}), 1);
  sums.add(value_view(x.data() + 100 * kWidth, DType::f32, {200, kWidth}), 3);
  const ModuleStatistics seen = sums.statistics();
  EXPECT_EQ(seen.rows, kRows);
  for (std::int64_t i = 0; i < kWidth; ++i) {
    float amax = 0;
    for (std::int64_t row = 0; row < kRows; ++row)
      amax = std::max(amax, std::fabs(x[static_cast<std::size_t>(row * kWidth + i)]));
    EXPECT_EQ(seen.amax[static_cast<std::size_t>(i)], amax);
    for (std::int64_t j = 0; j < kWidth; ++j) {
      long double sum = 0;
      for (std::int64_t row = 0; row < kRows; ++row)
        sum += static_cast<long double>(x[static_cast<std::size_t>(row * kWidth + i)]) *
               static_cast<long double>(x[static_cast<std::size_t>(row * kWidth + j)]);
      // Of 300 products in f64; then one rounding to f32, which may fall to a neighbour.
      const auto mean = static_cast<double>(sum / kRows);
      const double bound = std::fabs(mean) * 0x1p-23 + 1e-13;
      EXPECT_NEAR(static_cast<double>(seen.hessian[static_cast<std::size_t>(i * kWidth + j)]), mean,
                  bound);
      if (i == j) {
        EXPECT_NEAR(static_cast<double>(seen.mean_square[static_cast<std::size_t>(i)]), mean,
                    bound);
      }
      if (i / 16 == j / 16) {
        const auto at = static_cast<std::size_t>(i / 16 * 256 + i % 16 * 16 + j % 16);
        EXPECT_NEAR(static_cast<double>(seen.block_hessians[at]), mean, bound);
      }
    }
  }
  EXPECT_EQ(seen.block_hessians.size(), 3U * 256);
  EXPECT_EQ(seen.block_hessians.back(), 0.0F) << "channels beyond the width";
}

TEST(InputSums, DoNotDependOnPiecesAndThreads) {
  std::vector<float> x = random_rows(600, 48);
  const auto seen_by = [&](std::int64_t piece, int threads) {
    InputSums sums(48, {.block_hessians = true, .hessian = true});
    for (std::int64_t row = 0; row < 600; row += piece)
      sums.add(value_view(x.data() + row * 48, DType::f32, {std::min(piece, 600 - row), 48}),
               threads);
    return sums.statistics();
  };
  const ModuleStatistics whole = seen_by(600, 1), pieces = seen_by(77, 5);
  EXPECT_EQ(whole.mean_square, pieces.mean_square);
  EXPECT_EQ(whole.block_hessians, pieces.block_hessians);
  EXPECT_EQ(whole.hessian, pieces.hessian);
}

TEST(InputSums, KeepNaNAndTakeNothing) {
  std::vector<float> x{1.0F, NAN, -3.0F, 2.0F};
  InputSums sums(2, {});
  sums.add(value_view(x.data(), DType::f32, {2, 2}), 1);
  EXPECT_EQ(sums.statistics().amax[0], 3.0F);
  EXPECT_TRUE(std::isnan(sums.statistics().amax[1]));
  InputSums none(2, {});
  none.add(value_view(x.data(), DType::f32, {0, 2}), 1);
  EXPECT_EQ(none.statistics().mean_square, std::vector<float>(2, 0.0F));
}

TEST(Calibrate, SeesWhatPasses) {
  const HandmadeModel model("model");
  const EvalText text = random_text("a", 100);
  const ModelStatistics seen =
      calibrate_model(model, {.texts = {text}, .window = 64, .full_hessians = "layers\\.1\\."});
  ASSERT_EQ(seen.modules.size(), 3U);
  EXPECT_EQ(seen.origin.tokens, 100);
  EXPECT_EQ(seen.modules[0].module, "model.layers.0.mlp.up_proj");
  EXPECT_TRUE(seen.modules[0].hessian.empty());
  EXPECT_EQ(seen.modules[1].hessian.size(), 24U * 24);
  const auto ids = model.tokenize(text.content);
  std::vector<float> rows(100 * 24);
  model.embed(ids, value_view(rows.data(), DType::f32, {100, 24}));
  InputSums sums(24, {});
  sums.add(value_view(rows.data(), DType::f32, {100, 24}), 1);
  EXPECT_EQ(seen.modules[0].mean_square, sums.statistics().mean_square);
  ASSERT_EQ(seen.caches.size(), 3U);
  EXPECT_EQ(seen.caches[0].k_amax.size(), 2U);
  // Two windows, of 64 tokens and of 36; the second expert sees none.
  EXPECT_EQ(seen.routings[2].tokens, (std::vector<std::int64_t>{100, 0, 6}));
  ASSERT_EQ(seen.notes.size(), 3U);
  EXPECT_NE(seen.notes[0].find("1 of 3 experts: 1;"), std::string::npos) << seen.notes[0];
}

TEST(Calibrate, RefusesWhatItCannotDo) {
  const HandmadeModel model("model");
  const EvalText text = random_text("a", 100);
  const auto message = [&](const CalibrateOptions& options) {
    try {
      (void)calibrate_model(model, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({.texts = {text}, .full_hessians = "q_proj"}).find("no module"),
            std::string::npos);
  EXPECT_NE(message({.texts = {text}, .full_hessians = "("}).find("("), std::string::npos);
}

// What the walk takes and what statistics take are in memory together.
TEST(Calibrate, StaysWithinItsMemoryAsAWhole) {
  constexpr std::int64_t kWidth = 512, kLayers = 3;
  const HandmadeModel model("model", 0.0F, 256, kWidth, kLayers);
  // In steps of 64 KiB, the least that is not refused.
  const auto least = [&](const std::string& full) {
    CalibrateOptions options{
        .texts = {random_text("a", 40)}, .block_hessians = false, .full_hessians = full};
    for (options.max_memory = 1 << 16;; options.max_memory += 1 << 16) {
      try {
        (void)calibrate_model(model, options);
        return options.max_memory;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("max_memory"), std::string::npos);
        if (options.max_memory > std::uint64_t{1} << 26) throw;
      }
    }
  };
  // f32 of all layers, and f64 of one while it passes.
  const std::uint64_t hessians = kWidth * kWidth * (4 * kLayers + 8);
  const std::uint64_t more = least("up_proj") - least("");
  EXPECT_GE(more + (1 << 16), hessians);
  EXPECT_LE(more, hessians + (1 << 16));
}

TEST(Calibrate, LooksForModulesBeforeItWalks) {
  HandmadeModel model("model");
  model.on_layer_ = [](std::int64_t) { ADD_FAILURE() << "the walk has begun"; };
  EXPECT_THROW(
      (void)calibrate_model(model, {.texts = {random_text("a", 100)}, .full_hessians = "q_proj"}),
      Error);
}

std::string written(const ModelStatistics& statistics) {
  const std::string path = in_folder("octavo_calibrate_written.safetensors");
  write_statistics(path, statistics);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A model whose second layer fails, once.
struct Interrupted {
  explicit Interrupted(const std::string& name)
      : folder(std::filesystem::path(::testing::TempDir()) / name) {
    std::filesystem::remove_all(folder);
    options.resume = folder.string();
    model.on_layer_ = [](std::int64_t layer) {
      if (layer == 1) fail(ErrorCode::io, "test", "the machine went away");
    };
    EXPECT_THROW((void)calibrate_model(model, options), Error);
    model.on_layer_ = {};
  }
  ~Interrupted() { std::filesystem::remove_all(folder); }
  Interrupted(const Interrupted&) = delete;
  Interrupted& operator=(const Interrupted&) = delete;

  std::filesystem::path folder;
  HandmadeModel model{"model"};
  CalibrateOptions options{
      .texts = {random_text("a", 200)}, .window = 64, .full_hessians = "layers\\.[01]\\."};
};

TEST(Calibrate, GoesOnFromTheLastLayer) {
  Interrupted run("octavo_calibrate_resume");
  CalibrateOptions without = run.options;
  without.resume.clear();
  const std::string whole = written(calibrate_model(run.model, without));
  std::vector<std::int64_t> layers;
  run.model.on_layer_ = [&](std::int64_t layer) { layers.push_back(layer); };
  run.options.keep_state = true;
  EXPECT_EQ(written(calibrate_model(run.model, run.options)), whole);
  EXPECT_EQ(layers.front(), 1) << "the first layer was done";
  layers.clear();
  EXPECT_EQ(written(calibrate_model(run.model, run.options)), whole);
  EXPECT_TRUE(layers.empty()) << "all layers were done";
  std::ofstream(run.folder / "statistics-mine.safetensors") << "mine";
  remove_calibration_state(run.folder.string());
  EXPECT_TRUE(std::filesystem::remove(run.folder / "statistics-mine.safetensors"));
  EXPECT_TRUE(std::filesystem::is_empty(run.folder)) << "what is its own is removed";
}

TEST(Calibrate, LeavesNoStateWhenAllIsDone) {
  Interrupted run("octavo_calibrate_done");
  (void)calibrate_model(run.model, run.options);
  EXPECT_FALSE(std::filesystem::exists(run.folder));
}

TEST(Calibrate, RefusesTheStateOfAnother) {
  Interrupted run("octavo_calibrate_other");
  const auto refused = [&](const CalibrateOptions& options, const char* words) {
    try {
      (void)calibrate_model(run.model, options);
      ADD_FAILURE() << "expected an error about " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  run.model.fingerprint_ = 8;
  refused(run.options, "the state of another run: models");
  run.model.fingerprint_ = 7;
  CalibrateOptions other = run.options;
  other.texts = {random_text("a", 200, 9)};
  refused(other, "the state of another run: texts");
  other = run.options;
  other.window = 32;
  refused(other, "window 64 there, 32 here");
  other = run.options;
  other.block_hessians = false;
  refused(other, "Hessians of blocks true there, false here");
  other = run.options;
  other.full_hessians = "layers";
  refused(other, "Hessians of all channels");
  const auto first = run.folder / "statistics-0.safetensors";
  std::filesystem::resize_file(first, 100);
  refused(run.options, "damaged or not whole: of layer 0");
  std::filesystem::remove(first);
  refused(run.options, "damaged or not whole: of layer 0");
  ModelStatistics foreign;
  foreign.origin.fingerprint = 8;
  write_statistics(first.string(), foreign);
  refused(run.options, "of layer 0, it is of another model");
}

// What an evaluation left is no state of a calibration.
TEST(Calibrate, RefusesTheStateOfAnEvaluation) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "octavo_calibrate_eval";
  std::filesystem::remove_all(folder);
  HandmadeModel model("model");
  const EvalModel* const models[] = {&model};
  (void)evaluate_models(models, {.texts = {random_text("a", 200)},
                                 .window = 64,
                                 .resume = folder.string(),
                                 .keep_state = true});
  EXPECT_THROW(
      (void)calibrate_model(
          model, {.texts = {random_text("a", 200)}, .window = 64, .resume = folder.string()}),
      Error);
  std::filesystem::remove_all(folder);
}

ModelStatistics sample() {
  const HandmadeModel model("a model");
  return calibrate_model(model, {.texts = {random_text("a", 100)}, .full_hessians = "layers\\.2"});
}

TEST(StatisticsFile, GivesBackWhatWasWritten) {
  const std::string path = in_folder("octavo_statistics.safetensors");
  const ModelStatistics made = sample();
  write_statistics(path, made);
  const StatisticsFile file(path);
  EXPECT_EQ(file.origin().model, "a model");
  EXPECT_EQ(file.origin().fingerprint, 7U);
  EXPECT_EQ(file.origin().tokens, 100);
  EXPECT_EQ(file.origin().texts, made.origin.texts);
  ASSERT_EQ(file.modules().size(), 3U);
  EXPECT_EQ(file.width("model.layers.0.mlp.up_proj"), 24);
  EXPECT_EQ(file.width("model.layers.9.mlp.up_proj"), -1);
  for (std::size_t i = 0; i < 3; ++i) {
    const ModuleStatistics read = file.read(file.modules()[i]);
    EXPECT_EQ(read.rows, made.modules[i].rows);
    EXPECT_EQ(read.amax, made.modules[i].amax);
    EXPECT_EQ(read.mean_square, made.modules[i].mean_square);
    EXPECT_EQ(read.block_hessians, made.modules[i].block_hessians);
    EXPECT_EQ(read.hessian, made.modules[i].hessian);
  }
  EXPECT_EQ(file.caches()[1].v_amax, made.caches[1].v_amax);
  EXPECT_EQ(file.routings()[1].tokens, made.routings[1].tokens);
  EXPECT_THROW((void)file.read("lm_head"), Error);
  file.check_model("the same", 7);
  try {
    file.check_model("another", 8);
    ADD_FAILURE() << "statistics of another model";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("'a model'"), std::string::npos) << message;
    EXPECT_NE(message.find("'another'"), std::string::npos) << message;
  }
}

// A binary imatrix file, by llama.cpp's description: little-endian, lengths before texts.
class Binary {
 public:
  Binary& number(std::int32_t value) {
    content_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Binary& entry(const std::string& name, std::int32_t calls, const std::vector<float>& values) {
    number(static_cast<std::int32_t>(name.size()));
    content_ += name;
    number(calls).number(static_cast<std::int32_t>(values.size()));
    content_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    return *this;
  }
  [[nodiscard]] const std::string& content() const { return content_; }

 private:
  std::string content_;
};

TEST(Imatrix, BinaryIsRead) {
  const Binary file = Binary()
                          .number(3)
                          .entry("blk.1.ffn_down.weight", 4, {8.0F, 2.0F})
                          .entry("blk.0.ffn_up_exps.weight", 4, {1.0F, 2.0F})
                          .entry("something.else", 1, {1.0F})
                          .number(99);
  const std::string path = in_folder("octavo.imatrix");
  std::ofstream(path, std::ios::binary) << file.content();
  const StatisticsFile seen(path);
  EXPECT_EQ(seen.modules(), std::vector<std::string>{"model.layers.1.mlp.down_proj"});
  EXPECT_EQ(seen.read("model.layers.1.mlp.down_proj").mean_square,
            (std::vector<float>{2.0F, 0.5F}));
  EXPECT_EQ(seen.read("model.layers.1.mlp.down_proj").rows, 4);
  EXPECT_EQ(seen.notes().size(), 2U);
  seen.check_model("any", 3);  // it knows no fingerprint
}

TEST(Imatrix, DamagedBinaryIsRefused) {
  const std::string whole =
      Binary().number(1).entry("blk.1.ffn_down.weight", 4, {8.0F, 2.0F}).number(9).content();
  EXPECT_EQ(parse_imatrix_binary(whole, "x").modules.size(), 1U);
  for (std::size_t size = 0; size + 4 < whole.size(); ++size)
    EXPECT_THROW((void)parse_imatrix_binary(std::string_view(whole).substr(0, size), "x"), Error)
        << size;
  const std::string bad[] = {Binary().number(1 << 30).content(),
                             Binary().number(1).entry("a", 0, {1.0F}).content(),
                             Binary().number(1).entry("a", 1, {}).content(),
                             Binary().number(1).entry("a", 1, {-1.0F}).content(),
                             Binary().number(1).entry("a", 1, {NAN}).content()};
  for (const std::string& content : bad)
    EXPECT_THROW((void)parse_imatrix_binary(content, "x"), Error);
}

TEST(Imatrix, GgufIsRead) {
  gguf::TestFile file;
  file.keys = {gguf::text_key("general.type", "imatrix"),
               gguf::strings_key("imatrix.datasets", {"wiki.txt"})};
  constexpr std::uint32_t kF32 = 0;
  file.tensors = {gguf::tensor("blk.0.attn_q.weight.in_sum2", {2}, kF32, 0),
                  gguf::tensor("blk.0.attn_q.weight.counts", {1}, kF32, 32),
                  gguf::tensor("blk.0.ffn_up_exps.weight.in_sum2", {2, 2}, kF32, 64),
                  gguf::tensor("blk.0.ffn_up_exps.weight.counts", {1, 2}, kF32, 96)};
  const auto add = [&](const std::vector<float>& values) {
    file.data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    file.data.resize((file.data.size() + 31) / 32 * 32, '\0');
  };
  add({6.0F, 3.0F});
  add({3.0F});
  add({1.0F, 2.0F, 0.0F, 0.0F});
  add({2.0F, 0.0F});
  const std::string path = in_folder("octavo_imatrix.gguf");
  std::ofstream(path, std::ios::binary) << file.bytes();
  const StatisticsFile seen(path);
  EXPECT_EQ(seen.origin().texts, std::vector<std::string>{"wiki.txt"});
  EXPECT_EQ(seen.modules(), (std::vector<std::string>{"model.layers.0.mlp.experts.0.up_proj",
                                                      "model.layers.0.mlp.experts.1.up_proj",
                                                      "model.layers.0.self_attn.q_proj"}));
  EXPECT_EQ(seen.read("model.layers.0.self_attn.q_proj").mean_square,
            (std::vector<float>{2.0F, 1.0F}));
  EXPECT_EQ(seen.read("model.layers.0.mlp.experts.0.up_proj").mean_square,
            (std::vector<float>{0.5F, 1.0F}));
  EXPECT_EQ(seen.read("model.layers.0.mlp.experts.1.up_proj").rows, 0);
  ASSERT_EQ(seen.notes().size(), 1U);
  EXPECT_NE(seen.notes()[0].find("experts.1.up_proj' has seen no token"), std::string::npos);
  // The count of attn_q, the third number of the file's data.
  const std::string whole = file.data;
  for (const float count : {-3.0F, NAN, INFINITY, 1e30F}) {
    std::memcpy(file.data.data() + 32, &count, sizeof count);
    std::ofstream(path, std::ios::binary) << file.bytes();
    EXPECT_THROW((void)StatisticsFile(path), Error) << count;
  }
  file.data = whole;
  for (const float sum : {-3.0F, NAN}) {
    std::memcpy(file.data.data(), &sum, sizeof sum);
    std::ofstream(path, std::ios::binary) << file.bytes();
    EXPECT_THROW((void)StatisticsFile(path), Error) << sum;
  }
  file.data = whole;
  file.keys[0] = gguf::text_key("general.type", "model");
  std::ofstream(path, std::ios::binary) << file.bytes();
  EXPECT_THROW((void)StatisticsFile(path), Error);
}

TEST(StatisticsFile, OtherFilesAreRefused) {
  const auto refused = [](const std::string& content) {
    const std::string path = in_folder("octavo_other.bin");
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_THROW((void)StatisticsFile(path), Error) << content;
  };
  refused("");
  refused("hello, this is a text and no file of statistics");
  refused("GGUF");
  std::string safetensors(R"({"__metadata__":{"format":"pt"}})");
  const std::uint64_t length = safetensors.size();
  refused(std::string(reinterpret_cast<const char*>(&length), 8) + safetensors);
  EXPECT_THROW((void)StatisticsFile(in_folder("octavo_missing")), Error);
}

}  // namespace
}  // namespace octavo::eval
