// Tensors saved by a forward, taken out and put back, as by a framework that keeps the memory
// itself.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "octavo/nn/linear/linear_pass.h"
#include "octavo/nn/linear/nn_testing_internal.h"

namespace octavo {
namespace {

struct Case {
  std::string name;
  Recipe recipe;
  bool enabled;
  std::vector<std::string> parts;
};

std::vector<Case> cases() {
  const std::vector<std::string> values{"x", "weight"};
  const std::vector<std::string> codes{"x.columnwise_codes", "x.columnwise_scales",
                                       "weight.columnwise_codes", "weight.columnwise_scales"};
  const std::vector<std::string> two_levels{
      "x.columnwise_codes",      "x.columnwise_scales",      "x.columnwise_tensor_scale",
      "weight.columnwise_codes", "weight.columnwise_scales", "weight.columnwise_tensor_scale"};
  const std::vector<std::string> rowwise{"x.codes", "x.scales", "weight.codes", "weight.scales"};
  return {{"none", MXFP8BlockScaling{}, false, values},
          {"high_precision",
           MXFP8BlockScaling{.backward_override = BackwardOverride::high_precision}, true, values},
          {"dequantized", MXFP8BlockScaling{.backward_override = BackwardOverride::dequantized},
           true, rowwise},
          {"delayed", DelayedScaling{}, true, codes},
          {"block", Float8BlockScaling{}, true, codes},
          {"mxfp8", MXFP8BlockScaling{}, true, codes},
          {"nvfp4", NVFP4BlockScaling{.disable_stochastic_rounding = true}, true, two_levels}};
}

// The same bytes elsewhere; all of them lie dense here.
Tensor moved(const Tensor& from) {
  const std::size_t bytes = from.bytes().size();
  const Tensor memory = Tensor::values({static_cast<std::int64_t>(bytes / 8 + 1)}, DType::f64);
  std::memcpy(memory.bytes().data(), from.view().data, bytes);
  View view = from.view();
  view.data = memory.bytes().data();
  return Tensor::adopt(view, memory.owner());
}

TEST(LinearSaved, PartsAreAllMemoryAndMayLieElsewhere) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    Linear layer(noise({32, 64}, 0.3, 0.1), noise({32}, 0.7));
    const Tensor x = noise({48, 64}, 0.5), dy = noise({48, 32}, 0.9);
    LinearSaved saved;
    {
      const Autocast scope(one.recipe, {.enabled = one.enabled});
      (void)layer.forward(x, saved);
    }
    saved.ticket.reset();  // backward runs three times here, and ends no step
    const LinearGradients want = linear_backward(dy, saved);
    std::vector<std::string> names;
    std::vector<Tensor> elsewhere;
    std::vector<std::weak_ptr<void>> owners;
    for (const LinearSaved::Part& part : saved.take_parts()) {
      names.emplace_back(part.name);
      elsewhere.push_back(moved(part.tensor));
      if (part.name != "x" && part.name != "weight") owners.push_back(part.tensor.owner());
    }
    EXPECT_EQ(names, one.parts);
    for (const auto& owner : owners) EXPECT_TRUE(owner.expired());
    EXPECT_TRUE(saved.take_parts().empty());
    for (int time = 0; time < 2; ++time) {
      const LinearGradients got = linear_backward(dy, saved.with_parts(elsewhere));
      EXPECT_TRUE(same_bits(got.dx, want.dx));
      EXPECT_TRUE(same_bits(got.dw, want.dw));
      EXPECT_TRUE(same_bits(got.db, want.db));
    }
  }
}

TEST(LinearSaved, PartsThatAreNotNeededAreNotKept) {
  for (const bool enabled : {false, true}) {
    Linear layer(64, 32);
    LinearSaved saved;
    const Autocast scope(MXFP8BlockScaling{}, {.enabled = enabled});
    (void)layer.forward(noise({48, 64}, 0.5), saved, {.needs_dx = false});
    for (const LinearSaved::Part& part : saved.take_parts()) EXPECT_EQ(part.name.front(), 'x');
  }
}

TEST(LinearSaved, OtherPartsAreRefused) {
  Linear layer(64, 32);
  LinearSaved saved;
  {
    const auto scope = autocast(MXFP8BlockScaling{});
    (void)layer.forward(noise({48, 64}, 0.5), saved);
  }
  std::vector<Tensor> parts;
  for (const LinearSaved::Part& part : saved.take_parts()) parts.push_back(part.tensor);
  std::swap(parts[0], parts[1]);
  const auto [code, text] = error_of([&] { (void)saved.with_parts(parts); });
  EXPECT_EQ(code, ErrorCode::invalid_argument);
  EXPECT_NE(text.find("got another x.columnwise_codes than forward kept"), std::string::npos);
  parts.pop_back();
  EXPECT_EQ(error_of([&] { (void)saved.with_parts(parts); }).first, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace octavo
