// Experts in one tensor or each in its own, with biases or without.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "octavo/base/error_testing_internal.h"
#include "octavo/model/decoder.h"
#include "octavo/model/model_testing_internal.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

class ExpertStacks : public CheckpointTest {
 protected:
  std::string written(const TinyModel& model) {
    save("model/config.json", model.config().dump());
    write_tensors(path("model/model.safetensors"), model.tensors);
    return path("model");
  }
  TestTensor& tensor_of(TinyModel& model, const std::string& name) {
    for (TestTensor& one : model.tensors)
      if (one.plan.name == name) return one;
    throw std::out_of_range(name);
  }
};

TinyModel some_model(bool biases) {
  TinyModel model{.layers = 1, .experts = 4, .top_k = 2, .qk_norm = true, .expert_biases = biases};
  model.fill();
  return model;
}

TEST_F(ExpertStacks, BiasesAreAdded) {
  for (const bool stacks : {false, true}) {
    SCOPED_TRACE(stacks ? "stacks" : "matrices");
    TinyModel model = some_model(true);
    if (stacks) model.stack_experts();
    const std::vector<std::int32_t> ids{3, 14, 15, 9, 26, 5};
    const Tensor got = Decoder(written(model)).logits(ids);
    const Matrix64 wanted = TinyOracle(model).logits(ids);
    double largest = 0.0;
    for (const auto& row : wanted)
      for (const double logit : row) largest = std::max(largest, std::abs(logit));
    // As in decoder_test.cc: ten products in f32, one after another.
    for (std::size_t i = 0; i < got.span<float>().size(); ++i)
      ASSERT_NEAR(static_cast<double>(got.span<float>()[i]), wanted[i / 50][i % 50],
                  1e-5 * largest);
  }
}

TEST_F(ExpertStacks, BytesAreThoseOfStacksAndBiases) {
  TinyModel plain = some_model(false), biased = some_model(true);
  plain.stack_experts();
  const std::int64_t without = ModelFiles(written(plain)).layer_nbytes(0);
  biased.stack_experts();
  const std::int64_t with = ModelFiles(written(biased)).layer_nbytes(0);
  EXPECT_EQ(with - without, 4 * 4 * (2 * 40 + 24));
}

// Of the shape of a stack nothing was asked before its bytes were counted.
TEST_F(ExpertStacks, MoreDimensionsThanAShapeHasAreRefused) {
  for (const char* name : {"gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"}) {
    SCOPED_TRACE(name);
    TinyModel model = some_model(true);
    model.stack_experts();
    auto& shape = tensor_of(model, text("model.layers.0.mlp.experts.", name)).plan.shape;
    while (shape.size() < 9) shape.insert(shape.begin() + 1, 1);
    const std::string folder = written(model);
    expect_refused(ErrorCode::invalid_argument, text(name, "' has 9 dimensions"),
                   [&] { (void)ModelFiles(folder, {.weights = DType::bf16}); });
  }
}

TEST_F(ExpertStacks, OfAnotherShapeAreRefusedWhenTheModelIsOpened) {
  TinyModel model = some_model(false);
  model.stack_experts();
  tensor_of(model, "model.layers.0.mlp.experts.down_proj").plan.shape = {4, 12, 80};
  const std::string folder = written(model);
  expect_refused(ErrorCode::invalid_argument, "has shape [4, 12, 80]; expected [4, 24, 40]",
                 [&] { (void)ModelFiles(folder); });
}

}  // namespace
}  // namespace octavo
