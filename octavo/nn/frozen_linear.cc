#include "octavo/nn/frozen_linear.h"

#include <algorithm>
#include <array>

#include "octavo/nn/converted_internal.h"
#include "octavo/nn/product_input_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/produce.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

// The second level of NVFP4 is the amax over the largest scale times the largest code.
constexpr float kLargestNvfp4 = 448.0F * 6.0F;

template <typename Source>
QuantizedTensor quantized(const InputQuantization& input, const Source& x, const LinearRun& run) {
  QuantizeOptions options{
      .threads = run.threads, .backend = run.backend, .log = run.log, .stream = run.stream};
  const float inverse = 1.0F / input.static_scale, amax = input.static_scale * kLargestNvfp4;
  if (input.static_scale > 0.0F) {
    const bool two_levels = input.scaling->scale.format == ScaleFormat::e4m3_f32;
    (two_levels ? options.given_amax : options.given_inv_scale) = two_levels ? &amax : &inverse;
  }
  return quantize(x, *input.scaling, options);
}

GemmOptions gemm_options(const FrozenLinear& linear, const LinearRun& run, const View& residual) {
  return {.bias = linear.bias.view(),
          .residual = residual,
          .threads = run.threads,
          .backend = run.backend,
          .log = run.log,
          .stream = run.stream};
}

// Products write dense memory: columns of wider rows are copied there.
void multiply(const FrozenLinear& linear, const Operand& x, const View& y, const LinearRun& run,
              const View& residual) {
  if (!is_dense(y)) {
    const Tensor dense = Tensor::values(y.shape, y.dtype);
    multiply(linear, x, dense.view(), run, residual);
    return convert_into(dense.view(), y, "Linear", run);
  }
  const GemmOptions options = gemm_options(linear, run, residual);
  if (linear.packed) return gemm_into(x, *linear.packed, y, options);
  if (linear.weight.codes) return gemm_into(x, *linear.weight.codes, y, options);
  gemm_into(x, linear.weight.values, y, options);
}

View columns_of(View view, std::int64_t first, std::int64_t count) {
  if (view.shape.rank() == 0) return view;
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[1];
  view.shape[1] = count;
  return view;
}

bool have_same_input(std::span<const FrozenLinear> parts) {
  return std::ranges::all_of(
      parts, [&](const FrozenLinear& part) { return part.input == parts.front().input; });
}

// Each part's columns of y and of the residual.
template <typename Visit>
void for_each_part(std::span<const FrozenLinear> parts, const View& y, const View& residual,
                   const Visit& visit) {
  std::int64_t first = 0;
  for (const FrozenLinear& part : parts) {
    visit(part, columns_of(y, first, part.out()), columns_of(residual, first, part.out()));
    first += part.out();
  }
}

void multiply_parts(std::span<const FrozenLinear> parts, const Operand& x, const View& y,
                    const LinearRun& run, const View& residual) {
  for_each_part(parts, y, residual, [&](const FrozenLinear& part, const View& to, const View& add) {
    multiply(part, x, to, run, add);
  });
}

}  // namespace

QuantizedTensor InputQuantization::quantize(const View& x, const LinearRun& run) const {
  return quantized(*this, x, run);
}

QuantizedTensor InputQuantization::quantize(const Produced& x, const LinearRun& run) const {
  return quantized(*this, x, run);
}

std::int64_t FrozenLinear::nbytes() const {
  const std::int64_t biases = bias.owner() != nullptr ? bias.nbytes() : 0;
  if (packed) return packed->nbytes() + biases;
  return (weight.codes ? weight.codes->nbytes() : weight.values.nbytes()) + biases;
}

void FrozenLinear::forward_into(const View& x, const View& y, const LayerRun& run,
                                const View& residual) const {
  octavo::forward_into(std::span(this, 1), x, y, run, residual);
}

void forward_into(std::span<const FrozenLinear> parts, const View& x, const View& y,
                  const LayerRun& run, const View& residual) {
  if (run.observes_inputs())
    for (const FrozenLinear& part : parts)
      for (const std::string& module : part.modules) run.observer->on_input(module, x);
  if (have_same_input(parts)) {
    const ProductInput shared(parts.front().input, x, run.run);
    return multiply_parts(parts, shared.operand(), y, run.run, residual);
  }
  for_each_part(parts, y, residual, [&](const FrozenLinear& part, const View& to, const View& add) {
    multiply(part, ProductInput(part.input, x, run.run).operand(), to, run.run, add);
  });
}

void forward_into(std::span<const FrozenLinear> parts, const Produced& x, const View& y,
                  const LayerRun& run, const View& residual) {
  const InputQuantization& input = parts.front().input;
  const bool have_one = have_same_input(parts) && !run.observes_inputs();
  if (!have_one || !input.scaling) {
    // Rounded once: by the norm or activation itself where all products take the same.
    const Tensor values = produce(x, {.out = have_one ? input.values : DType::f32,
                                      .threads = run.run.threads,
                                      .backend = run.run.backend,
                                      .log = run.run.log,
                                      .stream = run.run.stream});
    if (!have_one) return forward_into(parts, values.view(), y, run, residual);
    return multiply_parts(parts, values, y, run.run, residual);
  }
  multiply_parts(parts, input.quantize(x, run.run), y, run.run, residual);
}

}  // namespace octavo
