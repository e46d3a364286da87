#include "octavo/nn/mlp.h"

#include <algorithm>

#include "octavo/nn/activated_internal.h"
#include "octavo/nn/pointwise_internal.h"

namespace octavo {
namespace {

// Rows at a time: what lies between the two products is several times as wide as the hidden states.
constexpr std::int64_t kRows = 1024;

View rows_from(View view, std::int64_t first, std::int64_t count) {
  if (view.shape.rank() == 0) return view;
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[0];
  view.shape[0] = count;
  return view;
}

}  // namespace

Tensor clamped(const View& rows, const MlpActivation& activation, const LinearRun& run) {
  const std::int64_t cols = rows.shape[1] / 2, count = rows.shape[0];
  Tensor out = Tensor::values({count, cols}, DType::f32);
  clamped_gate_into(
      {static_cast<const float*>(rows.data), static_cast<std::size_t>(2 * cols * count)}, cols,
      {activation.gate_limit, activation.gate_alpha}, out.span<float>(), run.threads);
  return out;
}

std::int64_t Mlp::nbytes() const {
  std::int64_t sum = down.nbytes();
  for (const FrozenLinear& part : up) sum += part.nbytes();
  return sum;
}

void Mlp::forward_into(const View& x, const View& y, const LayerRun& run,
                       const View& residual) const {
  const std::int64_t rows = x.shape[0];
  std::int64_t width = 0;
  for (const FrozenLinear& part : up) width += part.out();
  // An observer gets the input of a Linear as one.
  const std::int64_t step = run.observes_inputs() ? std::max<std::int64_t>(rows, 1) : kRows;
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    const Tensor wide = Tensor::values({count, width}, DType::f32);
    octavo::forward_into(up, rows_from(x, first, count), wide.view(), run);
    const View to = rows_from(y, first, count), add = rows_from(residual, first, count);
    if (activation.gate_limit > 0.0) {
      down.forward_into(clamped(wide.view(), activation, run.run).view(), to, run, add);
    } else {
      octavo::forward_into(
          std::span(&down, 1),
          produced(wide.view(), Activation{.kind = activation.kind, .gated = activation.gated}), to,
          run, add);
    }
  }
}

}  // namespace octavo
