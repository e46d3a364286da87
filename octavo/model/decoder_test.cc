#include "octavo/model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "octavo/base/error_testing_internal.h"
#include "octavo/model/generate.h"
#include "octavo/model/model_testing_internal.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/quantize_checkpoint.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

// Relative to the largest logit. A product of K terms is off by at most (K + 8) u of the sum of
// their magnitudes, with K <= 40 and u = 2^-24: 3e-6; errors are of either sign, so about a tenth
// of that. Two layers have ten products one after another, and norms keep relative errors.
constexpr double kTolerance = 1e-5;

std::vector<std::int32_t> some_ids(std::size_t count) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>((i * 17 + 5) % 50);
  return ids;
}

void expect_near(const Tensor& got, const Matrix64& wanted, double tolerance,
                 std::size_t first = 0) {
  double largest = 0.0;
  for (const auto& row : wanted)
    for (const double logit : row) largest = std::max(largest, std::abs(logit));
  const auto numbers = got.span<float>();
  const std::size_t cols = wanted[0].size();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    ASSERT_NEAR(static_cast<double>(numbers[i]), wanted[first + i / cols][i % cols],
                tolerance * largest)
        << "token " << first + i / cols;
}

class DecoderTest : public CheckpointTest {
 protected:
  std::string written(TinyModel& model) {
    if (model.tensors.empty()) model.fill();
    save("model/config.json", model.config().dump());
    write_tensors(path("model/model.safetensors"), model.tensors);
    return path("model");
  }
};

TEST_F(DecoderTest, LogitsAreThoseOfPlainLoops) {
  const std::map<std::string, TinyModel> models{
      {"grouped queries", {}},
      {"window", {.window = 3}},
      {"norm of Q and K, tied head", {.qk_norm = true, .tied = true}},
      {"experts", {.experts = 5, .top_k = 2, .qk_norm = true}}};
  for (auto [name, model] : models) {
    SCOPED_TRACE(name);
    const Decoder decoder(written(model));
    const auto ids = some_ids(11);
    expect_near(decoder.logits(ids), TinyOracle(model).logits(ids), kTolerance);
  }
}

TEST_F(DecoderTest, AHeadInTheFilesIsUsedWhereTheConfigTiesIt) {
  TinyModel model;
  model.fill();
  model.tied = true;  // in the config alone
  const Decoder decoder(written(model));
  EXPECT_FALSE(decoder.files().has_tied_head());
  model.tied = false;
  const auto ids = some_ids(5);
  expect_near(decoder.logits(ids), TinyOracle(model).logits(ids), kTolerance);
}

TEST_F(DecoderTest, TokensOneByOneOrInPartsGiveTheSameLogits) {
  TinyModel model{.window = 5, .experts = 4, .top_k = 2, .qk_norm = true};
  const Decoder decoder(written(model));
  const auto ids = some_ids(13);
  const Matrix64 wanted = TinyOracle(model).logits(ids);
  for (const std::size_t step : {std::size_t{1}, std::size_t{4}, std::size_t{13}}) {
    DecoderCache cache = decoder.make_cache();
    for (std::size_t first = 0; first < ids.size(); first += step) {
      const auto part = std::span(ids).subspan(first, std::min(step, ids.size() - first));
      expect_near(decoder.logits(part, &cache), wanted, kTolerance, first);
    }
    EXPECT_EQ(cache.length(), 13);
  }
}

// next_logits takes 1024 tokens at a time; before, the first of them had the frequencies of a
// context that ended there.
TEST_F(DecoderTest, LongPromptsHaveTheFrequenciesOfTheirWholeLength) {
  const char* const scalings[] = {
      R"({"rope_type": "longrope", "short_factor": [1, 1, 1], "long_factor": [2, 3, 4],
          "original_max_position_embeddings": 1050})",
      R"({"rope_type": "dynamic", "factor": 64})"};
  for (const char* scaling : scalings) {
    SCOPED_TRACE(scaling);
    TinyModel model{.layers = 1};
    model.fill();
    Json config = model.config();
    const Json rope = parse_json(scaling, "rope");
    config.set("max_position_embeddings", rope["factor"].is_null() ? 2048 : 64);
    config.set("rope_scaling", rope);
    save("model/config.json", config.dump());
    write_tensors(path("model/model.safetensors"), model.tensors);
    const Decoder decoder(path("model"));
    const auto ids = some_ids(1100);
    const Tensor whole = decoder.logits(ids);
    DecoderCache cache = decoder.make_cache();
    const Tensor last = decoder.next_logits(ids, cache);
    const auto row = whole.span<float>().last(50);
    const Matrix64 wanted{std::vector<double>(row.begin(), row.end())};
    expect_near(last, wanted, kTolerance);
  }
}

TEST_F(DecoderTest, CachesOfFewerBits) {
  TinyModel model;
  const Decoder decoder(written(model));
  const auto ids = some_ids(12);
  const Matrix64 wanted = TinyOracle(model).logits(ids);
  // Keys and values are off by 2^-8 (bf16) and 2^-4 (e4m3) of themselves at most, and so are
  // outputs of attention; what the residual adds to them is exact. Ten products may amplify that.
  const std::pair<KvCacheOptions, double> caches[] = {{{.values = DType::bf16}, 10 * 0x1p-8},
                                                      {{}, 10 * 0x1p-4}};
  for (const auto& [options, tolerance] : caches) {
    DecoderCache cache = decoder.make_cache(options);
    expect_near(decoder.logits(ids, &cache), wanted, tolerance);
    EXPECT_LT(cache.nbytes(), decoder.make_cache().nbytes());
  }
}

// What enters a product is off by 2^-8 of itself at most, and so are Q, K, V and weights of
// attention. In a line from token to logit there are, in each of two layers, four products and
// attention's three roundings, then the head: 15. The residual is exact, and norms keep relative
// errors.
TEST_F(DecoderTest, ActivationsOfBf16) {
  const std::map<std::string, TinyModel> models{
      {"window", {.window = 3}},
      {"tied head", {.tied = true}},
      {"experts", {.experts = 5, .top_k = 5, .qk_norm = true}}};
  for (auto [name, model] : models) {
    SCOPED_TRACE(name);
    const Decoder decoder(written(model), {.activations = DType::bf16});
    const auto ids = some_ids(11);
    const Tensor got = decoder.logits(ids);
    expect_near(got, TinyOracle(model).logits(ids), 15 * 0x1p-8);
    const Tensor in_f32 = Decoder(path("model")).logits(ids);
    EXPECT_FALSE(std::ranges::equal(got.bytes(), in_f32.bytes())) << "nothing was rounded";
    const Tensor again = decoder.logits(ids, nullptr, {.threads = 3});
    EXPECT_TRUE(std::ranges::equal(got.bytes(), again.bytes()));
  }
}

TEST_F(DecoderTest, ActivationsOfOtherTypesAreRefused) {
  TinyModel model;
  const std::string folder = written(model);
  expect_refused(ErrorCode::wrong_type, "expected float32 or bfloat16",
                 [&] { const Decoder decoder(folder, {.activations = DType::f16}); });
}

TEST_F(DecoderTest, ThreadsDoNotMatter) {
  TinyModel model{.experts = 4, .top_k = 2, .qk_norm = true};
  const Decoder decoder(written(model));
  const auto ids = some_ids(40);
  const Tensor one = decoder.logits(ids, nullptr, {.threads = 1});
  const Tensor three = decoder.logits(ids, nullptr, {.threads = 3});
  EXPECT_TRUE(std::ranges::equal(one.bytes(), three.bytes()));
}

TEST_F(DecoderTest, QuantizedWeightsAreMultipliedAsTheyAre) {
  TinyModel model{.hidden = 128, .layers = 1, .head_size = 32, .mid = 128};
  const std::string source = written(model);
  // Inputs stay values: the logits are those of the dequantized weights, but for the order of sums.
  for (const char* recipe : {"nvfp4", "mxfp4"}) {
    SCOPED_TRACE(recipe);
    const std::string codes = path(recipe), values = path(std::string(recipe) + "-values");
    (void)quantize_checkpoint(source, codes, {.plan = {.recipe = recipe}});
    (void)dequantize_checkpoint(codes, values, DType::f32);
    const Decoder packed(codes), plain(values);
    const auto ids = some_ids(9);
    const Tensor got = packed.logits(ids), wanted = plain.logits(ids);
    EXPECT_LT(packed.nbytes(), plain.nbytes() / 2);
    float largest = 0.0F, off = 0.0F;
    for (std::size_t i = 0; i < got.span<float>().size(); ++i) {
      largest = std::max(largest, std::abs(wanted.span<float>()[i]));
      off = std::max(off, std::abs(got.span<float>()[i] - wanted.span<float>()[i]));
    }
    EXPECT_LT(off, 1e-5F * largest);
  }
}

TEST_F(DecoderTest, ObserversSeeEveryInput) {
  TinyModel model{.layers = 1, .experts = 4, .top_k = 2, .qk_norm = true};
  const ModelFiles files(written(model));
  std::map<std::string, std::int64_t> rows;
  std::int64_t routed = 0, cached = 0;
  LayerObserver observer;
  observer.on_input = [&](std::string_view module, const View& x) {
    rows[std::string(module)] += x.shape[0];
  };
  observer.on_routing = [&](std::string_view module, std::span<const std::int64_t> tokens) {
    EXPECT_EQ(module, "model.layers.0.mlp.gate");
    for (const std::int64_t one : tokens) routed += one;
  };
  observer.on_cache = [&](std::string_view module, const View& k, const View&) {
    EXPECT_EQ(module, "model.layers.0.self_attn");
    cached += k.shape[2];
  };
  const auto ids = some_ids(6);
  const Tensor hidden = Tensor::values({6, 24}, DType::f32);
  files.embed(ids, hidden.view());
  View batch = value_view(hidden.view().data, DType::f32, {2, 3, 24});
  files.load_layer(0).forward({.hidden = batch, .observer = &observer});
  EXPECT_EQ(rows["model.layers.0.self_attn.q_proj"], 6);
  EXPECT_EQ(rows["model.layers.0.self_attn.o_proj"], 6);
  EXPECT_EQ(rows.size(), 4U + 1U + 3U * 4U);
  std::int64_t down = 0;
  for (int expert = 0; expert < 4; ++expert)
    down += rows[text("model.layers.0.mlp.experts.", expert, ".down_proj")];
  EXPECT_EQ(down, 12);
  EXPECT_EQ(routed, 12);
  EXPECT_EQ(cached, 3);
}

TEST_F(DecoderTest, SequencesOfABatchDoNotSeeEachOther) {
  TinyModel model;
  const ModelFiles files(written(model));
  const DecoderLayer layer = files.load_layer(0);
  const auto ids = some_ids(8);
  const Tensor both = Tensor::values({8, 24}, DType::f32),
               one = Tensor::values({4, 24}, DType::f32);
  files.embed(ids, both.view());
  files.embed(std::span(ids).subspan(4), one.view());
  layer.forward({.hidden = value_view(both.view().data, DType::f32, {2, 4, 24})});
  layer.forward({.hidden = value_view(one.view().data, DType::f32, {1, 4, 24})});
  for (std::size_t i = 0; i < 96; ++i)
    EXPECT_NEAR(both.span<float>()[96 + i], one.span<float>()[i], 1e-5) << i;
}

// By row blocks that share scales, in the order of ids: what the whole table has there.
TEST_F(DecoderTest, RowsOfAQuantizedEmbedding) {
  TinyModel model{.vocabulary = 300, .hidden = 128, .layers = 1, .head_size = 32, .mid = 128};
  const std::string source = written(model);
  for (const char* recipe : {"fp8-block", "mxfp8", "fp8-channel"}) {
    SCOPED_TRACE(recipe);
    const std::string codes = path(recipe);
    (void)quantize_checkpoint(
        source, codes,
        {.plan = {.recipe = recipe, .target = Dialect::octavo, .include = {"embed_tokens"}}});
    const ModelFiles files(codes);
    const Embedding whole = files.load_embedding();
    const std::vector<std::int32_t> ids{299, 0, 127, 128, 0, 255, 256, 299, 131};
    const auto count = static_cast<std::int64_t>(ids.size());
    const Tensor rows = Tensor::values({count, 128}, DType::f32),
                 wanted = Tensor::values({count, 128}, DType::f32);
    files.embed(ids, rows.view());
    whole.forward_into(ids, wanted.view());
    EXPECT_TRUE(std::ranges::equal(rows.bytes(), wanted.bytes()));
  }
}

TEST_F(DecoderTest, BadInputIsRefused) {
  TinyModel model;
  const Decoder decoder(written(model));
  expect_refused(ErrorCode::invalid_argument, "got no tokens", [&] { (void)decoder.logits({}); });
  const std::vector<std::int32_t> beyond{1, 50}, negative{-1};
  expect_refused(ErrorCode::invalid_argument, "got id 50 at position 1",
                 [&] { (void)decoder.logits(beyond); });
  expect_refused(ErrorCode::invalid_argument, "got id -1", [&] { (void)decoder.logits(negative); });
  const auto long_text = some_ids(65);
  expect_refused(ErrorCode::invalid_argument, "at most the 64 positions",
                 [&] { (void)decoder.logits(long_text); });
  DecoderCache cache = decoder.make_cache();
  (void)decoder.logits(some_ids(60), &cache);
  const auto five = some_ids(5);
  expect_refused(ErrorCode::invalid_argument, "after 60",
                 [&] { (void)decoder.logits(five, &cache); });
  EXPECT_EQ(cache.length(), 60);
}

TEST_F(DecoderTest, MissingAndMisshapenTensorsAreNamed) {
  TinyModel model;
  model.fill();
  std::vector<TestTensor> all = model.tensors;
  std::erase_if(model.tensors, [](const TestTensor& tensor) {
    return tensor.plan.name == "model.layers.1.mlp.up_proj.weight";
  });
  expect_refused(ErrorCode::invalid_argument, "no tensor 'model.layers.1.mlp.up_proj.weight'",
                 [&] { (void)ModelFiles(written(model)); });
  model.tensors = all;
  model.head_size = 12;
  expect_refused(ErrorCode::invalid_argument, "'model.layers.0.self_attn.q_proj.weight' has shape",
                 [&] { (void)ModelFiles(written(model)); });
}

TEST_F(DecoderTest, GreedyTextEndsAtEos) {
  TinyModel model;
  const Decoder decoder(written(model));
  const auto ids = some_ids(4);
  const GenerateResult text = generate(decoder, ids, {.max_tokens = 12, .stop_at_eos = false});
  EXPECT_EQ(text.ids.size(), 12U);
  // Each token is the most likely one after all before it.
  std::vector<std::int32_t> so_far = ids;
  for (const std::int32_t id : text.ids) {
    const Matrix64 logits = TinyOracle(model).logits(so_far);
    const auto& last = logits.back();
    EXPECT_NEAR(last[static_cast<std::size_t>(id)], *std::ranges::max_element(last), 1e-4);
    so_far.push_back(id);
  }
  std::vector<std::int32_t> heard;
  const GenerateResult three =
      generate(decoder, ids, {.stop_at_eos = false, .on_token = [&](std::int32_t id) {
                                heard.push_back(id);
                                return heard.size() < 3;
                              }});
  EXPECT_EQ(three.ids, heard);
  EXPECT_EQ(heard.size(), 3U);
}

}  // namespace
}  // namespace octavo
