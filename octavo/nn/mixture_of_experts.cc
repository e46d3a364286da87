#include "octavo/nn/mixture_of_experts.h"

#include <algorithm>
#include <cstring>

#include "octavo/nn/activated_internal.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/nn/pointwise_internal.h"
#include "octavo/nn/product_input_internal.h"
#include "octavo/nn/routing_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/produce.h"

namespace octavo {
namespace {

View rows_from(View view, std::int64_t first, std::int64_t count) {
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[0];
  view.shape[0] = count;
  return view;
}

View columns_from(View view, std::int64_t first, std::int64_t count) {
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[1];
  view.shape[1] = count;
  return view;
}

float* row_of(const View& rows, std::int64_t row) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(rows.data) + row * rows.strides[0]);
}

// f32 rows of x by token, in the order of experts.
Tensor gathered(const View& x, const Routing& routing) {
  const std::int64_t cols = x.shape[1];
  const Tensor out =
      Tensor::values({static_cast<std::int64_t>(routing.tokens.size()), cols}, DType::f32);
  for (std::size_t i = 0; i < routing.tokens.size(); ++i)
    std::memcpy(row_of(out.view(), static_cast<std::int64_t>(i)), row_of(x, routing.tokens[i]),
                static_cast<std::size_t>(cols) * sizeof(float));
  return out;
}

// y of a token = residual + the sum of its experts' rows times their weights, in the order of
// choice.
void combine_into(const Tensor& sorted, const Routing& routing, const View& residual,
                  const View& y) {
  const std::int64_t cols = y.shape[1];
  std::size_t pair = 0;
  for (std::int64_t token = 0; token < y.shape[0]; ++token) {
    float* to = row_of(y, token);
    std::fill_n(to, cols, 0.0F);
    for (std::int64_t i = 0; i < routing.top_k; ++i, ++pair) {
      const float* from = row_of(sorted.view(), routing.sorted_rows[pair]);
      const float weight = routing.weights[pair];
      for (std::int64_t col = 0; col < cols; ++col) to[col] += weight * from[col];
    }
    if (residual.shape.rank() == 0) continue;
    const float* before = row_of(residual, token);
    for (std::int64_t col = 0; col < cols; ++col) to[col] += before[col];
  }
}

void add_bias(const Tensor& bias, std::span<const std::int64_t> rows, const View& y) {
  std::int64_t row = 0;
  for (std::size_t expert = 0; expert < rows.size(); ++expert) {
    const float* from = row_of(bias.view(), static_cast<std::int64_t>(expert));
    for (std::int64_t i = 0; i < rows[expert]; ++i, ++row) {
      float* to = row_of(y, row);
      for (std::int64_t col = 0; col < y.shape[1]; ++col) to[col] += from[col];
    }
  }
}

}  // namespace

std::int64_t ExpertLinear::out() const {
  return each.empty() ? stack.shape()[1] : each.front().out();
}

std::int64_t ExpertLinear::nbytes() const {
  std::int64_t sum = bias.owner() != nullptr ? bias.nbytes() : 0;
  for (const FrozenLinear& one : each) sum += one.nbytes();
  if (each.empty()) sum += stack.codes ? stack.codes->nbytes() : stack.values.nbytes();
  return sum;
}

void ExpertLinear::forward_into(const View& x, std::span<const std::int64_t> rows, const View& y,
                                const LayerRun& run) const {
  std::int64_t first = 0;
  for (std::size_t expert = 0; expert < rows.size(); first += rows[expert], ++expert) {
    if (run.observes_inputs() && expert < modules.size())
      for (const std::string& module : modules[expert])
        run.observer->on_input(module, rows_from(x, first, rows[expert]));
    if (each.empty() || rows[expert] == 0) continue;
    each[expert].forward_into(rows_from(x, first, rows[expert]), rows_from(y, first, rows[expert]),
                              {.run = run.run});
  }
  if (each.empty() && x.shape[0] > 0) {
    const GemmOptions options{.threads = run.run.threads,
                              .backend = run.run.backend,
                              .log = run.run.log,
                              .stream = run.run.stream};
    const Operand b = stack.codes ? Operand(*stack.codes) : Operand(stack.values);
    // Products write dense memory: columns of wider rows are copied there.
    const Tensor dense = is_dense(y) ? Tensor() : Tensor::values(y.shape, y.dtype);
    const View to = is_dense(y) ? y : dense.view();
    gemm_grouped_into(ProductInput(input, x, run.run).operand(), b, rows, to, options);
    if (!is_dense(y)) convert_into(to, y, "MixtureOfExperts", run.run);
  }
  if (bias.owner() != nullptr) add_bias(bias, rows, y);
}

std::int64_t MixtureOfExperts::nbytes() const {
  std::int64_t sum = router.nbytes() + down.nbytes() + (shared ? shared->nbytes() : 0);
  for (const ExpertLinear& part : up) sum += part.nbytes();
  return sum + (shared_gate.exists() ? shared_gate.nbytes() : 0);
}

void MixtureOfExperts::forward_into(const View& x, const View& y, const LayerRun& run,
                                    const View& residual) const {
  const std::int64_t rows = x.shape[0], experts = router.out();
  const Tensor logits = Tensor::values({rows, experts}, DType::f32);
  router.forward_into(x, logits.view(), run);
  const Routing routing = route(logits.span<float>(), experts, *this);
  if (run.observer != nullptr && run.observer->on_routing)
    run.observer->on_routing(module, routing.counts);

  const Tensor sorted = gathered(x, routing);
  std::int64_t width = 0, first = 0;
  for (const ExpertLinear& part : up) width += part.out();
  const auto pairs = static_cast<std::int64_t>(routing.tokens.size());
  const Tensor wide = Tensor::values({pairs, width}, DType::f32);
  for (const ExpertLinear& part : up) {
    part.forward_into(sorted.view(), routing.counts, columns_from(wide.view(), first, part.out()),
                      run);
    first += part.out();
  }
  const Tensor activated =
      activation.gate_limit > 0.0
          ? clamped(wide.view(), activation, run.run)
          : produce(produced(wide.view(),
                             Activation{.kind = activation.kind, .gated = activation.gated}),
                    {.threads = run.run.threads, .backend = run.run.backend, .log = run.run.log});
  const Tensor results = Tensor::values({pairs, y.shape[1]}, DType::f32);
  down.forward_into(activated.view(), routing.counts, results.view(), run);
  if (!shared) return combine_into(results, routing, residual, y);

  const Tensor common = Tensor::values({rows, y.shape[1]}, DType::f32);
  shared->forward_into(x, common.view(), run);
  if (shared_gate.exists()) {
    const Tensor gates = Tensor::values({rows, 1}, DType::f32);
    shared_gate.forward_into(x, gates.view(), run);
    multiply_by_sigmoid(common.span<float>(), y.shape[1], gates.span<float>(), run.run.threads);
  }
  combine_into(results, routing, residual, y);
  add({static_cast<float*>(y.data), static_cast<std::size_t>(rows * y.shape[1])},
      common.span<float>(), run.run.threads);
}

}  // namespace octavo
