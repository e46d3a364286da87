#include "octavo/nn/linear/linear.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/philox.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/format/named_formats.h"
#include "octavo/nn/linear/linear_internal.h"
#include "octavo/nn/linear/quantized_weight.h"
#include "octavo/quant/quantize.h"
#include "octavo/round/encode.h"

namespace octavo {
namespace {

constexpr std::string_view kModule = "Linear";

void store(const Tensor& to, std::size_t at, double value) {
  switch (to.dtype()) {
    case DType::f64:
      to.span<double>()[at] = value;
      return;
    case DType::f32:
      to.span<float>()[at] = static_cast<float>(value);
      return;
    case DType::f16:
      to.span<std::uint16_t>()[at] = static_cast<std::uint16_t>(encode<f16_format>(value));
      return;
    default:
      to.span<std::uint16_t>()[at] = static_cast<std::uint16_t>(encode<bf16_format>(value));
  }
}

Tensor placed(const Tensor& host, const LinearOptions& options) {
  return options.device.kind == DeviceKind::cpu
             ? host
             : to_device(host.view(), options.device, options.run.stream);
}

// Before the weight and before the bias: a compiler makes the arguments of a call in any order.
void check_options(std::int64_t in, std::int64_t out, const LinearOptions& options) {
  check(in >= 1 && out >= 1, ErrorCode::invalid_argument, kModule, "got in_features = ", in,
        " and out_features = ", out, "; expected both at least 1");
  check(is_value(options.params_dtype), ErrorCode::wrong_type, kModule,
        "params_dtype is codes; expected float64, float32, float16 or bfloat16; for codes make the "
        "layer inside quantized_model_init");
}

constexpr double kFirstDeviation = 0.023;

// The i-th weight depends on the seed and i alone: Box and Muller's two uniform draws for a normal
// one. The first is never zero.
double normal_draw(std::uint64_t seed, std::uint64_t i) {
  const PhiloxBlock block = philox4x32(seed, i);
  const double radius = 0x1p-32 * (static_cast<double>(block[0]) + 1.0),
               phase = 0x1p-32 * static_cast<double>(block[1]);
  return std::sqrt(-2.0 * std::log(radius)) * std::cos(2.0 * std::numbers::pi * phase);
}

Tensor first_weight(std::int64_t in, std::int64_t out, const LinearOptions& options) {
  check_options(in, out, options);
  const Tensor weight = Tensor::values({out, in}, options.params_dtype);
  const auto count = static_cast<std::size_t>(in * out);
  for (std::size_t i = 0; i < count; ++i)
    store(weight, i, kFirstDeviation * normal_draw(options.seed, i));
  return placed(weight, options);
}

Tensor first_bias(std::int64_t in, std::int64_t out, const LinearOptions& options) {
  check_options(in, out, options);
  if (!options.bias) return {};
  const Tensor bias = Tensor::values({out}, options.params_dtype);
  std::memset(bias.bytes().data(), 0, bias.bytes().size());
  return placed(bias, options);
}

ModuleQuantizersOptions quantizer_options(const LinearOptions& options, Device device) {
  ModuleQuantizersOptions out{.module_type = std::string(kModule), .name = options.name};
  out.warn = options.warn;
  out.seed = options.seed;
  out.make = [device, stream = options.run.stream](const View& like) {
    return values_on(device, like.shape, like.dtype, stream);
  };
  return out;
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options)
    : Linear(first_weight(in, out, options), first_bias(in, out, options), options) {}

Linear::Linear(const Tensor& weight, const Tensor& bias, const LinearOptions& options)
    : options_(options),
      weight_{.values = weight},
      bias_(bias),
      quantizers_(quantizer_options(options, weight.view().device)) {
  check_parameters(weight_, bias_, kModule);
  if (current_model_init().enabled) quantize_weight();
}

void Linear::quantize_weight() {
  const ModelInitState scope = current_model_init();
  const Tensor values = std::exchange(weight_.values, {});
  weight_.codes = first_quantized_weight(quantizers_, *scope.recipe, values.view(), options_.run);
  weight_.made_with = scope.recipe;
  if (scope.preserve_high_precision_init_val) init_values_ = values;
}

void Linear::set_quantized_weight(const View& values) {
  const auto lock = quantizers_.lock();
  check(weight_.codes != nullptr, ErrorCode::unsupported, kModule,
        "the weight is not codes; write into weight()");
  if (values.shape != weight_.shape())
    fail(ErrorCode::invalid_argument, kModule, "got new values of shape ", to_string(values.shape),
         "; expected ", to_string(weight_.shape()));
  QuantizedTensor codes = *requantized_weight(quantizers_, values, options_.run);
  codes.source = weight_.codes->source;
  weight_.codes = std::make_shared<const QuantizedTensor>(std::move(codes));
}

Tensor Linear::forward(const Tensor& x, LinearSaved& saved, const LinearForward& options) {
  LinearCall call{.x = x};
  {
    const auto lock = quantizers_.lock();
    call.weight = weight_;
    call.bias = bias_;
  }
  call.needs = options.training ? LinearNeeds{.dx = options.needs_dx}
                                : LinearNeeds{.dx = false, .dw = false, .db = false};
  call.training = options.training;
  call.is_first_microbatch = options.is_first_microbatch;
  call.quantizers = &quantizers_;
  call.cache = &cache_;
  call.run = options_.run;
  return linear_forward(call, &saved);
}

Tensor Linear::forward(const Tensor& x, const LinearForward& options) {
  return forward(x, saved_, options);
}

Tensor Linear::added_gradients(const Tensor& dy, const LinearSaved& saved) {
  LinearGradients found = linear_gradients(dy, saved, gradients_);
  if (saved.needs.dw) gradients_.dw = std::move(found.dw);
  if (saved.needs.db) gradients_.db = std::move(found.db);
  return std::move(found.dx);
}

Tensor Linear::backward(const Tensor& dy, const LinearSaved& saved) {
  Tensor dx;
  {
    const auto lock = quantizers_.lock();
    dx = added_gradients(dy, saved);
  }
  if (saved.ticket) saved.ticket->ran();
  return dx;
}

Tensor Linear::backward(const Tensor& dy) {
  Tensor dx;
  LinearSaved used;
  {
    const auto lock = quantizers_.lock();
    dx = added_gradients(dy, saved_);
    std::swap(used, saved_);
  }
  if (used.ticket) used.ticket->ran();
  return dx;
}

void Linear::zero_grad() {
  const auto lock = quantizers_.lock();
  gradients_ = {};
}

std::int64_t Linear::weight_nbytes() const {
  return weight_.codes ? weight_.codes->nbytes() : weight_.values.nbytes();
}

}  // namespace octavo
