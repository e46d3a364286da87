#include "octavo/nn/transformer_layer.h"

#include <algorithm>
#include <span>

#include "octavo/nn/pointwise_internal.h"

namespace octavo {
namespace {

std::span<float> numbers_of(const View& view) {
  return {static_cast<float*>(view.data), static_cast<std::size_t>(element_count(view.shape))};
}

// to = from + norm(branch).
void add_normed(const NormLayer& norm, const Tensor& branch, const View& to, const LinearRun& run) {
  add(numbers_of(to), norm.forward(branch.view(), run).span<float>(), run.threads);
}

}  // namespace

std::int64_t TransformerLayer::nbytes() const {
  std::int64_t sum = attention.nbytes();
  for (const NormLayer* norm : {&attention_norm, &mlp_norm, &after_attention_norm, &after_mlp_norm})
    if (norm->exists()) sum += norm->nbytes();
  return sum + std::visit([](const auto& one) { return one.nbytes(); }, mlp);
}

void TransformerLayer::forward(const View& hidden, KvCache* cache, const LayerRun& run) const {
  const std::int64_t batch = hidden.shape[0], width = hidden.shape[2];
  const std::int64_t rows = batch * hidden.shape[1];
  if (rows == 0) return;
  const View states = value_view(hidden.data, DType::f32, {rows, width});
  const auto mlp_into = [&](const View& x, const View& y, const View& residual) {
    std::visit([&](const auto& one) { one.forward_into(x, y, run, residual); }, mlp);
  };
  // Results of a product are in other memory than its residual: the states go to `middle` and back.
  const Tensor middle = Tensor::values({rows, width}, DType::f32);
  const Produced before = attention_norm.produced(states);
  if (!after_attention_norm.exists()) {
    attention.forward_into(before, batch, middle.view(), states, cache, run);
    const Tensor x = mlp_norm.forward(middle.view(), run.run);
    if (!after_mlp_norm.exists()) return mlp_into(x.view(), states, middle.view());
    const Tensor branch = Tensor::values({rows, width}, DType::f32);
    mlp_into(x.view(), branch.view(), {});
    std::ranges::copy(middle.span<float>(), numbers_of(states).begin());
    return add_normed(after_mlp_norm, branch, states, run.run);
  }
  attention.forward_into(before, batch, middle.view(), {}, cache, run);
  add_normed(after_attention_norm, middle, states, run.run);
  const Tensor x = mlp_norm.forward(states, run.run);
  if (after_mlp_norm.exists()) {
    mlp_into(x.view(), middle.view(), {});
    return add_normed(after_mlp_norm, middle, states, run.run);
  }
  mlp_into(x.view(), middle.view(), states);
  std::ranges::copy(middle.span<float>(), numbers_of(states).begin());
}

}  // namespace octavo
