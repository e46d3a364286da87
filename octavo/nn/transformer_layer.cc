#include "octavo/nn/transformer_layer.h"

#include <algorithm>
#include <span>

#include "octavo/nn/pointwise_internal.h"

namespace octavo {
namespace {

std::span<float> numbers_of(const View& view) {
  return {static_cast<float*>(view.data), static_cast<std::size_t>(element_count(view.shape))};
}

// out = norm(out) + hidden.
void finish_branch(const NormLayer& norm, const View& hidden, const View& out,
                   const LinearRun& run) {
  const Tensor normed = norm.forward(out, run);
  std::ranges::copy(numbers_of(hidden), numbers_of(out).begin());
  add(numbers_of(out), normed.span<float>(), run.threads);
}

}  // namespace

std::int64_t TransformerLayer::nbytes() const {
  std::int64_t sum = attention.nbytes();
  for (const NormLayer* norm : {&attention_norm, &mlp_norm, &after_attention_norm, &after_mlp_norm})
    if (norm->exists()) sum += norm->nbytes();
  return sum + std::visit([](const auto& one) { return one.nbytes(); }, mlp);
}

void TransformerLayer::attend_into(const View& hidden, const View& out, KvCache* cache,
                                   const LayerRun& run) const {
  const std::int64_t batch = hidden.shape[0], rows = batch * hidden.shape[1];
  const View states = value_view(hidden.data, DType::f32, {rows, hidden.shape[2]});
  const bool has_norm = after_attention_norm.exists();
  attention.forward_into(attention_norm.produced(states), batch, out, has_norm ? View{} : states,
                         cache, run);
  if (has_norm) finish_branch(after_attention_norm, states, out, run.run);
}

void TransformerLayer::feed_forward_into(const View& hidden, const View& out,
                                         const LayerRun& run) const {
  const Tensor x = mlp_norm.forward(hidden, run.run);
  const bool has_norm = after_mlp_norm.exists();
  std::visit(
      [&](const auto& one) { one.forward_into(x.view(), out, run, has_norm ? View{} : hidden); },
      mlp);
  if (has_norm) finish_branch(after_mlp_norm, hidden, out, run.run);
}

void TransformerLayer::forward(const View& hidden, KvCache* cache, const LayerRun& run) const {
  const std::int64_t rows = hidden.shape[0] * hidden.shape[1], width = hidden.shape[2];
  if (rows == 0) return;
  // Results of a product are in other memory than its residual.
  const Tensor middle = Tensor::values({rows, width}, DType::f32);
  attend_into(hidden, middle.view(), cache, run);
  feed_forward_into(middle.view(), value_view(hidden.data, DType::f32, {rows, width}), run);
}

}  // namespace octavo
