#include "octavo/nn/linear/linear_pass.h"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/place_internal.h"
#include "octavo/nn/linear/linear_internal.h"
#include "octavo/ops/column_sums_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/gemm_run_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

QuantizeOptions quantize_options(const LinearRun& run) {
  return {.threads = run.threads, .backend = run.backend, .log = run.log, .stream = run.stream};
}

Tensor new_values(const Shape& shape, DType dtype, Device device, const LinearRun& run) {
  return run.make ? run.make(value_view(nullptr, dtype, shape))
                  : values_on(device, shape, dtype, run.stream);
}

Tensor dequantized(const QuantizedTensor& codes, DType dtype, const LinearRun& run) {
  Tensor out = new_values(codes.shape, dtype, codes.device(), run);
  dequantize_into(codes, out.view(), quantize_options(run));
  return out;
}

bool is_f64(const Operand& operand) {
  return operand.quantized() == nullptr && operand.values().dtype == DType::f64;
}

// Of all memory that a view covers, gaps and repeated elements too.
Tensor copied_to_host(const View& from, const Exec& exec) {
  const MemorySpan span = memory_span(from);
  const Tensor memory = Tensor::values({(span.bytes + 7) / 8}, DType::f64);
  auto* bytes = memory.bytes().data();
  copy_and_wait(exec, bytes, static_cast<const std::byte*>(from.data) - span.before,
                static_cast<std::size_t>(span.bytes));
  View view = from;
  view.device = {};
  view.data = bytes + span.before;
  return Tensor::adopt(view, memory.owner());
}

// Fallback for products that a device's backend does not offer: on the host, which synchronizes.
void multiply_on_host(const Operand& a, const Operand& b, const View& out, GemmOptions options) {
  const Exec exec{.device = out.device, .stream = options.stream};
  check_may_wait(exec, "Linear", "a product that its backend does not offer cannot be done");
  std::vector<Tensor> values;
  std::vector<QuantizedTensor> codes;
  values.reserve(4);
  codes.reserve(2);
  const auto here = [&](const Operand& operand) -> Operand {
    if (operand.quantized() == nullptr)
      return values.emplace_back(copied_to_host(operand.values(), exec));
    return codes.emplace_back(to_host(*operand.quantized(), options.stream));
  };
  for (View* added : {&options.bias, &options.residual})
    if (added->data != nullptr) *added = values.emplace_back(copied_to_host(*added, exec)).view();
  const Operand a_here = here(a), b_here = here(b);
  options.out = out.dtype;
  options.backend = nullptr;
  options.workspace = {};
  const Tensor result = gemm(a_here, b_here, options);
  copy_and_wait(exec, out.data, result.bytes().data(), result.bytes().size());
}

// A B^T into new memory of this shape, which is the product's with its rows cut differently.
Tensor product(const Operand& a, const Operand& b, const Shape& shape, DType dtype,
               const LinearRun& run, GemmOptions options = {}) {
  const Device device = a.quantized() != nullptr ? a.quantized()->device() : a.values().device;
  if (dtype == DType::f64 || is_f64(a) || is_f64(b)) options.accumulator = Accumulator::f64;
  options.threads = run.threads;
  options.backend = run.backend;
  options.log = run.log;
  options.stream = run.stream;
  Tensor out = new_values(shape, dtype, device, run);
  View matrix = out.view();
  const std::int64_t n = b.shape()[b.shape().rank() - 2];
  matrix.shape = {element_count(shape) / n, n};
  matrix.strides = dense_strides(matrix.shape, dtype, {}, false);
  if (gemm_into_if_offered(a, b, matrix, options)) return out;
  multiply_on_host(a, b, matrix, options);
  if (run.log != nullptr)
    run.log->once(
        text("[Linear] the backend of ", to_string(device),
             " does not offer a product; the host does it, with copies there and back, slowly"));
  return out;
}

// How a product of codes is summed.
GemmOptions sums(const LinearRun& run, const Recipe& recipe, LayerProduct product) {
  GemmOptions options;
  options.accumulator = accumulator_of(run, recipe);
  if (!recipe.use_split_accumulator(product)) options.promote_every = 0;
  return options;
}

// The codes of the weight for forward, cached where later micro-batches reuse them.
std::shared_ptr<const QuantizedTensor> weight_codes(const LinearCall& call, QuantizerSet& set,
                                                    bool columnwise, bool gathers) {
  if (call.weight.codes) return call.weight.codes;
  const bool keeps = call.is_first_microbatch.has_value() && call.cache != nullptr;
  if (keeps && !*call.is_first_microbatch && call.cache->codes &&
      (call.cache->codes->columnwise.exists() || !columnwise))
    return call.cache->codes;
  auto codes = std::make_shared<const QuantizedTensor>(quantized(
      set, {TensorRole::weight, true, columnwise, gathers}, call.weight.values.view(), call.run));
  if (keeps) call.cache->codes = codes;
  return codes;
}

// Values of a weight that may be codes.
Tensor weight_values(const LinearWeight& weight, const LinearRun& run) {
  return weight.codes ? dequantized(*weight.codes, weight.dtype(), run) : weight.values;
}

Tensor without_recipe(const LinearCall& call, const View& x, const Shape& y_shape,
                      LinearSaved* saved) {
  const LinearWeight weight{.values = weight_values(call.weight, call.run)};
  if (call.autocast.calibrating && !is_again(call.scales)) {
    const std::shared_ptr<QuantizerSet> set = call.quantizers->forward();
    const auto held = set->held_state();
    set->of(TensorRole::input).calibrate(x, quantize_options(call.run));
    set->of(TensorRole::weight).calibrate(weight.values.view(), quantize_options(call.run));
  }
  if (saved != nullptr && call.needs.dw) saved->x = call.x;
  if (saved != nullptr && call.needs.dx) saved->weight = weight;
  return product(x, weight.values, y_shape, call.x.dtype(), call.run, {.bias = call.bias.view()});
}

Tensor with_recipe(const LinearCall& call, const View& x, const Shape& y_shape, bool gathers,
                   LinearSaved* saved) {
  const Recipe& recipe = *call.autocast.recipe;
  const BackwardOverride override = recipe.backward_override();
  const bool both = saved != nullptr && override == BackwardOverride::none;
  const std::shared_ptr<QuantizerSet> set = call.quantizers->forward();
  QuantizedTensor x_codes =
      quantized(*set, {TensorRole::input, true, both && call.needs.dw, gathers}, x, call.run);
  const auto w_codes = weight_codes(call, *set, both && call.needs.dx, gathers);
  GemmOptions options = sums(call.run, recipe, LayerProduct::fprop);
  options.bias = call.bias.view();
  Tensor y = product(x_codes, *w_codes, y_shape, call.x.dtype(), call.run, options);
  if (saved == nullptr) return y;
  saved->override = override;
  if (override == BackwardOverride::high_precision) {
    if (call.needs.dw) saved->x = call.x;
    if (call.needs.dx) saved->weight = call.weight;
    return y;
  }
  QuantizedTensor w_kept = *w_codes;
  if (override == BackwardOverride::none) {
    for (QuantizedTensor* codes : {&x_codes, &w_kept}) {
      codes->rowwise = {};
      codes->scaling.rowwise = false;
    }
  }
  if (call.needs.dw) saved->x_codes = std::move(x_codes);
  if (call.needs.dx)
    saved->weight.codes = std::make_shared<const QuantizedTensor>(std::move(w_kept));
  return y;
}

Tensor bias_gradient(const View& dy, const LinearSaved& saved, const Tensor& before) {
  Tensor sums = new_values({saved.out}, saved.b_dtype, dy.device, saved.run);
  column_sums_into(dy, sums.view(),
                   {.before = before.view(),
                    .threads = saved.run.threads,
                    .backend = saved.run.backend,
                    .log = saved.run.log,
                    .stream = saved.run.stream},
                   "Linear");
  return sums;
}

GemmOptions added_to(const Tensor& before, GemmOptions options = {}) {
  if (before.view().data != nullptr) options.residual = before.view();
  return options;
}

// RAII: a quantizer records no amax for one call.
class Gathering {
 public:
  Gathering(Quantizer& quantizer, bool gathers) : quantizer_(quantizer) {
    quantizer_.set_gathers(gathers);
  }
  ~Gathering() { quantizer_.set_gathers(true); }
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

 private:
  Quantizer& quantizer_;
};

QuantizedTensor quantized_by(Quantizer& quantizer, const QuantizerSet& set,
                             const QuantizedCopies& copies, const View& values,
                             const LinearRun& run) {
  quantizer.set_usage(copies.rowwise, copies.columnwise);
  const Gathering gathering(quantizer, copies.gathers);
  if (!run.make) {
    const auto held = set.held_state();
    return quantizer.quantize(values, quantize_options(run));
  }
  QuantizedTensor out = make_quantized(values.shape, values.dtype, quantizer.scaling(), run.make);
  const auto held = set.held_state();
  quantizer.quantize_into(values, out, quantize_options(run));
  return out;
}

// Of dy. The first backward ends a step, which may make another scale; a second one of the same
// graph gets the scale of the first.
QuantizedTensor gradient_codes(const View& dy, const LinearSaved& saved) {
  QuantizerSet& set = *saved.quantizers;
  const QuantizedCopies copies{TensorRole::grad_output, saved.needs.dx, saved.needs.dw,
                               saved.gathers};
  if (saved.gradient_scale == nullptr) return quantized(set, copies, dy, saved.run);
  Tensor& kept = *saved.gradient_scale;
  if (kept.view().data == nullptr) {
    if (saved.gathers) set.seed(copies.role, dy, quantize_options(saved.run));
    if (set.is_to_seed(copies.role)) return quantized(set, copies, dy, saved.run);
    kept = new_values({1}, DType::f32, dy.device, saved.run);
    set.copy_scale(copies.role, kept, saved.run.stream);
  }
  Float8Quantizer quantizer = set.with_scale(copies.role, kept);
  return quantized_by(quantizer, set, copies, dy, saved.run);
}

void quantized_products(const View& dy, const LinearSaved& saved, const LinearGradients& before,
                        LinearGradients& gradients) {
  if (!saved.needs.dx && !saved.needs.dw) return;
  const QuantizedTensor codes = gradient_codes(dy, saved);
  const Recipe& recipe = saved.quantizers->recipe();
  if (saved.needs.dx)
    gradients.dx = product(codes, transposed(*saved.weight.codes), saved.x_shape, saved.x_dtype,
                           saved.run, sums(saved.run, recipe, LayerProduct::dgrad));
  if (saved.needs.dw)
    gradients.dw =
        product(transposed(codes), transposed(saved.x_codes), {saved.out, saved.in}, saved.w_dtype,
                saved.run, added_to(before.dw, sums(saved.run, recipe, LayerProduct::wgrad)));
}

void plain_products(const View& dy, const LinearSaved& saved, const LinearGradients& before,
                    LinearGradients& gradients) {
  if (saved.needs.dx) {
    const Tensor weight = weight_values(saved.weight, saved.run);
    gradients.dx =
        product(dy, transposed_view(weight.view()), saved.x_shape, saved.x_dtype, saved.run);
  }
  if (saved.needs.dw) {
    const Tensor x = saved.x_codes.shape.rank() > 0
                         ? dequantized(saved.x_codes, saved.x_dtype, saved.run)
                         : saved.x;
    gradients.dw = product(transposed_view(dy), transposed_view(as_matrix(x.view(), "Linear", "x")),
                           {saved.out, saved.in}, saved.w_dtype, saved.run, added_to(before.dw));
  }
}

// Shapes, types, and the quantizers of gradients.
void fill_common(const LinearCall& call, const Shape& y_shape, bool gathers, LinearSaved& saved) {
  const bool has_bias = call.bias.view().data != nullptr;
  const AutocastState& scope = call.autocast;
  saved.y_shape = y_shape;
  saved.x_shape = call.x.shape();
  saved.x_dtype = call.x.dtype();
  saved.w_dtype = call.weight.dtype();
  saved.b_dtype = has_bias ? call.bias.dtype() : saved.w_dtype;
  saved.out = call.weight.shape()[0];
  saved.in = call.weight.shape()[1];
  saved.needs = call.needs;
  saved.needs.db = call.needs.db && has_bias;
  saved.run = call.run;
  if (call.quantizers != nullptr) saved.mutex = call.quantizers->mutex();
  saved.calibrating = scope.calibrating;
  saved.gathers = gathers;
  const bool quantizes = scope.enabled && saved.override == BackwardOverride::none;
  if (!quantizes && !scope.calibrating) return;
  saved.quantizers = call.quantizers->backward();
  if (quantizes && saved.quantizers->has_state()) saved.gradient_scale = std::make_shared<Tensor>();
  if (gathers && scope.region)
    saved.ticket =
        scope.region->expect_backward({saved.quantizers, scope.amax_group, call.run.stream});
}

}  // namespace

QuantizedTensor quantized(QuantizerSet& set, const QuantizedCopies& copies, const View& values,
                          const LinearRun& run) {
  if (copies.gathers) set.seed(copies.role, values, quantize_options(run));
  if (!set.is_to_seed(copies.role))
    return quantized_by(set.with_new_draws(copies.role), set, copies, values, run);
  // Inference before the first step: by the values' own scale, which nobody else gets.
  const Tensor own = new_values({2}, DType::f32, values.device, run);
  set.fit_scale(copies.role, values, own, quantize_options(run));
  Float8Quantizer quantizer = set.with_scale(copies.role, own);
  return quantized_by(quantizer, set, copies, values, run);
}

Tensor linear_forward(const LinearCall& call, LinearSaved* saved) {
  // Outlives the lock: destroying the LinearSaved that it is swapped with may end a step.
  LinearSaved kept;
  std::unique_lock<std::recursive_mutex> lock;
  if (call.quantizers != nullptr) lock = call.quantizers->lock();
  const std::string op =
      call.quantizers != nullptr ? call.quantizers->module_type() : std::string("Linear");
  check_forward(call, op);
  const View x = as_matrix(call.x.view(), op, "x");
  const AutocastState& scope = call.autocast;
  const bool has_recipe = scope.enabled || scope.calibrating;
  if (has_recipe && call.weight.codes)
    check_weight_recipe(text(op, ".weight"), *call.weight.made_with, *scope.recipe);
  if (!scope.enabled && call.weight.codes && call.quantizers != nullptr)
    call.quantizers->warn(text("You are using quantized weights without quantized compute: ", op,
                               ".weight is dequantized in each forward. Use autocast."));
  const auto fits = [&](const QuantizerSet& set) {
    if (scope.enabled) check_quantizers(call, set, op);
  };
  if (has_recipe && call.quantizers->use(*scope.recipe, fits, false, call.run.stream) &&
      call.cache != nullptr)
    call.cache->codes.reset();
  if (scope.enabled) check_cache(call, op);

  Shape y_shape = call.x.shape();
  y_shape[y_shape.rank() - 1] = call.weight.shape()[0];
  // Calibration is often inference.
  const bool gathers =
      !is_again(call.scales) && (scope.calibrating || (saved != nullptr && call.training));
  if (has_recipe && gathers && scope.region)
    scope.region->runs_forward({call.quantizers->forward(), scope.amax_group, call.run.stream});
  LinearSaved* keeps = saved != nullptr && call.needs.any() ? &kept : nullptr;
  std::optional<ScalesOfForward> scales;
  if (scope.enabled) scales.emplace(*call.quantizers->forward(), call.scales, call.run.stream);
  Tensor y = scope.enabled ? with_recipe(call, x, y_shape, gathers, keeps)
                           : without_recipe(call, x, y_shape, keeps);
  if (keeps == nullptr) return y;
  fill_common(call, y_shape, gathers, kept);
  std::swap(*saved, kept);
  return y;
}

LinearGradients linear_gradients(const Tensor& dy, const LinearSaved& saved,
                                 const LinearGradients& before) {
  std::unique_lock<std::recursive_mutex> lock;
  if (saved.mutex) lock = std::unique_lock(*saved.mutex);
  check_backward(dy, saved);
  const View matrix = as_matrix(dy.view(), "Linear", "dy");
  LinearGradients gradients;
  if (saved.quantizers != nullptr && !saved.calibrating) {
    quantized_products(matrix, saved, before, gradients);
  } else {
    if (saved.calibrating) {
      const auto held = saved.quantizers->held_state();
      saved.quantizers->of(TensorRole::grad_output).calibrate(matrix, quantize_options(saved.run));
    }
    plain_products(matrix, saved, before, gradients);
  }
  if (saved.needs.db) gradients.db = bias_gradient(matrix, saved, before.db);
  return gradients;
}

LinearGradients linear_backward(const Tensor& dy, const LinearSaved& saved,
                                const LinearGradients& before) {
  LinearGradients gradients = linear_gradients(dy, saved, before);
  if (saved.ticket) saved.ticket->ran();
  return gradients;
}

}  // namespace octavo
