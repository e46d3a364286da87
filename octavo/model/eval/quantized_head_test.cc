// A quantized lm_head: what enters it is quantized as a server does it, in text that is generated
// and in an evaluation.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "octavo/model/decoder.h"
#include "octavo/model/eval/evaluate.h"
#include "octavo/model/model_testing_internal.h"
#include "octavo/pipeline/quantize_checkpoint.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

using QuantizedHead = CheckpointTest;

// Logits by the definition: a scale for each token, and products of the dequantized values in f64.
std::vector<std::vector<double>> logits_of(const ModelFiles& files,
                                           const std::vector<std::int32_t>& ids) {
  const ModelConfig& config = files.config();
  const auto count = static_cast<std::int64_t>(ids.size());
  const Tensor hidden = Tensor::values({count, config.hidden}, DType::f32);
  files.embed(ids, hidden.view());
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    files.load_layer(layer).forward(
        {.hidden = value_view(hidden.view().data, DType::f32, {1, count, config.hidden})});
  files.final_norm(hidden.view());
  const Tensor x = dequantize(quantize(hidden.view(), preset("fp8-channel")), DType::f32);
  const LinearWeight head = files.load_head(0, config.vocabulary);
  const Tensor w = dequantize(*head.codes, DType::f32);
  std::vector<std::vector<double>> out(ids.size());
  for (std::size_t row = 0; row < ids.size(); ++row)
    for (std::int64_t id = 0; id < config.vocabulary; ++id) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < config.hidden; ++k)
        sum +=
            static_cast<double>(x.span<float>()[row * static_cast<std::size_t>(config.hidden) +
                                                static_cast<std::size_t>(k)]) *
            static_cast<double>(w.span<float>()[static_cast<std::size_t>(id * config.hidden + k)]);
      out[row].push_back(sum);
    }
  return out;
}

TEST_F(QuantizedHead, TakesAQuantizedInput) {
  TinyModel model;
  model.fill();
  save("model/config.json", model.config().dump());
  write_tensors(path("model/model.safetensors"), model.tensors);
  (void)quantize_checkpoint(path("model"), path("codes"),
                            {.plan = {.recipe = "fp8-channel", .include = {"lm_head"}}});
  const std::vector<std::int32_t> ids{3, 14, 15, 9, 26, 5, 35, 8, 9, 7};
  const auto wanted = logits_of(ModelFiles(path("codes")), ids);
  const Tensor got = Decoder(path("codes")).logits(ids);
  double largest = 0.0, loss = 0.0;
  for (const auto& row : wanted)
    for (const double logit : row) largest = std::max(largest, std::abs(logit));
  // The same codes; a sum of 24 products in f32 is off by 32 * 2^-24 of their magnitudes at most.
  // Without quantizing x, logits would be off by about 2^-5 of them.
  for (std::size_t i = 0; i < got.span<float>().size(); ++i)
    ASSERT_NEAR(static_cast<double>(got.span<float>()[i]), wanted[i / 50][i % 50], 1e-5 * largest);
  for (std::size_t row = 0; row + 1 < ids.size(); ++row) {
    double sum = 0.0;
    for (const double logit : wanted[row]) sum += std::exp(logit);
    loss += (std::log(sum) - wanted[row][static_cast<std::size_t>(ids[row + 1])]) /
            static_cast<double>(ids.size() - 1);
  }
  const ModelEvaluation seen = evaluate({path("codes")}, {.texts = {{.name = "ids", .ids = ids}}});
  EXPECT_NEAR(seen.models[0].total.log_loss.value, loss, 1e-5 * largest);
}

}  // namespace
}  // namespace octavo
