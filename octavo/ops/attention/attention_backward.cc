// Gradients of attention, and the rounded inputs at which they are taken.
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/convert/convert.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/temporary_internal.h"
#include "octavo/ops/attention/attention_call_internal.h"
#include "octavo/ops/attention/attention_rungs_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention_backward";

// [B, H, rows, cols] as f32.
Tensor values_of(const AttentionCall& call, const AttentionStack& given, const Operand& operand,
                 const QuantizedTensor& made, const Tensor& halves, float* mean, bool rotated,
                 bool in_bf16, const Exec& exec) {
  const QuantizedTensor* codes = made.rowwise.exists() ? &made : operand.quantized();
  if (codes != nullptr) {
    const Tensor values = dequantize(*codes, DType::f32);
    return prepared(call, AttentionStack(values, kOp, "a copy"), {}, mean, rotated, true, exec);
  }
  if (halves.owner() != nullptr)
    return prepared(call, AttentionStack(halves, kOp, "a copy"), {}, nullptr, false, false, exec);
  Tensor values = prepared(call, given, {}, nullptr, false, false, exec);
  if (in_bf16 && given.elements().dtype != DType::bf16) {
    const Tensor rounded = encode(values.view(), bf16_format, {.overflow = Overflow::ieee});
    decode(rounded.view(), values.view());
  }
  return values;
}

AttentionInputs inputs_of(const AttentionCall& call, AttentionRung rung, const Exec& exec) {
  if (rung == AttentionRung::automatic) rung = AttentionRung::f32;
  const RungInputs inputs = rung_inputs(call, rung, exec);
  float* mean = inputs.mean.owner() != nullptr ? inputs.mean.span<float>().data() : nullptr;
  const bool in_bf16 = inputs.job.values == DType::bf16;
  return {.q = values_of(call, call.q, call.q_operand, inputs.q, inputs.halves_of_q, nullptr,
                         inputs.rotated, in_bf16, exec),
          .k = values_of(call, call.k, call.k_operand, inputs.k, inputs.halves_of_k, mean,
                         inputs.rotated, in_bf16, exec),
          .v = values_of(call, call.v, call.v_operand, inputs.v, inputs.halves_of_v, nullptr, false,
                         in_bf16, exec)};
}

Exec exec_of(const AttentionCall& call, std::vector<NamedView> views) {
  call.add_views(views);
  return make_exec_on(views, call.work(), call.options, kOp);
}

// Codes of a rung, or of the caller's, as values on a device: bf16, which tensor cores take, except
// where what the rung did to them is undone, in f32.
Tensor values_on_device(const AttentionCall& call, const Operand& operand,
                        const QuantizedTensor& made, float* mean, bool rotated, const Exec& exec) {
  const QuantizedTensor& codes = made.rowwise.exists() ? made : *operand.quantized();
  const bool undoes = made.rowwise.exists() && (rotated || mean != nullptr);
  Tensor values = temporary_values(exec, codes.shape, undoes ? DType::f32 : DType::bf16);
  dequantize_into(codes, values.view(), {.log = exec.log, .stream = exec.stream});
  if (undoes)
    return prepared(call, AttentionStack(values, kOp, "a copy"), {}, mean, rotated, true, exec);
  return values;
}

// The operands of a job on a device; `copies` keeps those that were made. Values that the rung does
// not quantize go as they are: the job says what they are rounded to.
void set_inputs_on_device(AttentionBackwardJob& job, const AttentionCall& call, const Exec& exec,
                          AttentionInputs& copies, RungInputs& inputs) {
  AttentionRung rung = call.options.rung;
  const bool automatic = rung == AttentionRung::automatic;
  if (automatic) rung = AttentionRung::f32;
  inputs = rung_inputs(call, rung, exec);
  AttentionJob& forward = job.forward;
  forward.values = inputs.job.values;
  forward.p = rung == AttentionRung::exact               ? AttentionP::f64
              : rung == AttentionRung::f16               ? AttentionP::f32
              : rung == AttentionRung::f32 && !automatic ? AttentionP::f32
                                                         : AttentionP::bf16;
  float* const mean =
      inputs.mean.owner() != nullptr ? static_cast<float*>(inputs.mean.view().data) : nullptr;
  const auto set = [&](AttentionOperand& to, Tensor& copy, const Operand& given,
                       const QuantizedTensor& made, const Tensor& halves, float* shift,
                       bool rotated) {
    if (halves.owner() != nullptr) {
      to = AttentionStack(halves, kOp, "a copy").operand();
      return;
    }
    if (!made.rowwise.exists() && given.quantized() == nullptr) return;
    copy = values_on_device(call, given, made, shift, rotated, exec);
    to = AttentionStack(copy, kOp, "a copy").operand();
  };
  set(forward.q, copies.q, call.q_operand, inputs.q, inputs.halves_of_q, nullptr, inputs.rotated);
  set(forward.k, copies.k, call.k_operand, inputs.k, inputs.halves_of_k, mean, inputs.rotated);
  set(forward.v, copies.v, call.v_operand, inputs.v, inputs.halves_of_v, nullptr, false);
}

Tensor reshaped(const Tensor& tensor, const Shape& shape) {
  return Tensor::adopt(value_view(tensor.view().data, tensor.dtype(), shape), tensor.owner());
}

Tensor gradient_like(const Operand& operand, const View& d_out, void* stream) {
  const DType given = operand.quantized() != nullptr ? DType::f32 : operand.values().dtype;
  return values_on(d_out.device, operand.shape(), given, stream);
}

void check_gradient(const View& view, const Shape& wanted, std::string_view name) {
  check_view(view, kOp, name);
  check_output(view, kOp);
  check(is_value(view.dtype), ErrorCode::wrong_type, kOp, name,
        " holds codes; expected float64, float32, float16 or bfloat16");
  if (view.shape != wanted)
    fail(ErrorCode::invalid_argument, kOp, name, " has shape ", to_string(view.shape),
         "; expected ", to_string(wanted));
}

bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

void check_sink_gradient(const View& view, const AttentionCall& call) {
  constexpr std::string_view kName = "the gradient of the sinks";
  check_gradient(view, {call.q.heads()}, kName);
  check(call.options.sinks.data != nullptr || call.q.heads() == 0, ErrorCode::invalid_argument, kOp,
        "got memory for the gradient of sinks, and no sinks; give the forward pass's");
  check(view.dtype == DType::f32 || view.dtype == DType::f64, ErrorCode::wrong_type, kOp, kName,
        " is ", dtype_name(view.dtype), "; expected float32 or float64");
}

void store(std::span<const double> numbers, const View& to) {
  auto* at = static_cast<std::byte*>(to.data);
  for (const double number : numbers) {
    const auto narrow = static_cast<float>(number);
    if (to.dtype == DType::f64) std::memcpy(at, &number, sizeof number);
    if (to.dtype == DType::f32) std::memcpy(at, &narrow, sizeof narrow);
    at += to.strides[0];
  }
}

// Checks that both are given, are f32, and come from a forward pass whose P was not rounded; or, on
// a device, rounded as tensor cores do.
void check_forward(const AttentionForward& forward, const AttentionCall& call) {
  check(is_given(forward.out) && is_given(forward.log_sum_exp), ErrorCode::invalid_argument, kOp,
        "got one of the output and the log-sum-exp of a forward pass; expected both or neither");
  const bool on_device = forward.out.device.kind != DeviceKind::cpu;
  const bool in_bf16 = on_device && call.options.rung == AttentionRung::bf16;
  check(call.options.rung == AttentionRung::f32 || in_bf16, ErrorCode::invalid_argument, kOp,
        "got the output of a forward pass on '", name_of(call.options.rung),
        "'; expected it on 'f32': others round P, and gradients are those of P as it is; leave it "
        "out, and it is found again");
  const Shape& q = call.q_operand.shape();
  const Shape rows(q.sizes().first(static_cast<std::size_t>(q.rank() - 1)));
  const auto check_one = [](const View& view, const Shape& wanted, std::string_view name) {
    check_view(view, kOp, name);
    if (view.shape != wanted)
      fail(ErrorCode::invalid_argument, kOp, name, " has shape ", to_string(view.shape),
           "; expected ", to_string(wanted));
    check(is_dense(view), ErrorCode::invalid_argument, kOp, name,
          " has gaps between its elements; expected it dense");
  };
  const auto check_type = [](const View& view, bool good, std::string_view name) {
    check(good || view.dtype == DType::f32, ErrorCode::wrong_type, kOp, name, " is ",
          is_value(view.dtype) ? dtype_name(view.dtype) : "codes", "; expected float32");
  };
  check_type(forward.out, in_bf16 && forward.out.dtype == DType::bf16, "the output");
  check_type(forward.log_sum_exp, false, "log_sum_exp");
  check_one(forward.out, call.out_shape(), "the output");
  check_one(forward.log_sum_exp, rows, "log_sum_exp");
}

// The gradient of sinks is summed in f64, and converted there.
void run_on_device(const Exec& exec, const AttentionOptions& options, AttentionBackwardJob& job,
                   const View& d_sinks) {
  if (!is_given(d_sinks) || element_count(d_sinks.shape) == 0)
    return run_attention_backward(exec, options, job);
  check(is_dense(d_sinks), ErrorCode::invalid_argument, kOp,
        "the gradient of the sinks has gaps between its elements; expected it dense on a device");
  const std::int64_t heads = d_sinks.shape[0];
  const Tensor sums = temporary_values(exec, {1, heads}, DType::f64);
  job.d_sinks = static_cast<double*>(sums.view().data);
  clear_memory(exec, job.d_sinks, static_cast<std::size_t>(heads) * sizeof(double));
  run_attention_backward(exec, options, job);
  View to = d_sinks;
  to.shape = {1, heads};
  to.strides = {heads * d_sinks.strides[0], d_sinks.strides[0]};
  run_attention_prepare(exec, options,
                        {.batches = 1,
                         .heads = 1,
                         .from = AttentionStack(Operand(sums), kOp, "a copy").operand(),
                         .to = AttentionStack(Operand(to), kOp, "the sinks").operand()});
}

}  // namespace

AttentionInputs attention_inputs(const Operand& q, const Operand& k, const Operand& v,
                                 const AttentionOptions& options) {
  const FpEnvGuard guard;
  const AttentionCall call(q, k, v, options, kOp);
  const Exec exec = exec_of(call, {});
  check(exec.device.kind == DeviceKind::cpu, ErrorCode::unsupported, kOp,
        "only the CPU gives the rounded inputs of a rung; copy there (to_host)");
  const AttentionInputs inputs = inputs_of(call, options.rung, exec);
  return {.q = reshaped(inputs.q, q.shape()),
          .k = reshaped(inputs.k, k.shape()),
          .v = reshaped(inputs.v, v.shape())};
}

AttentionGradients attention_backward(const Operand& q, const Operand& k, const Operand& v,
                                      const View& d_out, const AttentionOptions& options,
                                      const AttentionForward& forward) {
  (void)AttentionCall(q, k, v, options, kOp);  // throws before memory is made
  const auto like = [&](const Operand& operand) {
    return gradient_like(operand, d_out, options.stream);
  };
  AttentionGradients gradients{like(q), like(k), like(v)};
  if (options.sinks.data != nullptr)
    gradients.sinks = values_on(d_out.device, options.sinks.shape, DType::f32, options.stream);
  attention_backward_into(q, k, v, d_out, gradients.q.view(), gradients.k.view(),
                          gradients.v.view(), options, forward,
                          options.sinks.data != nullptr ? gradients.sinks.view() : View{});
  return gradients;
}

void attention_backward_into(const Operand& q, const Operand& k, const Operand& v,
                             const View& d_out, const View& d_q, const View& d_k, const View& d_v,
                             const AttentionOptions& options, const AttentionForward& forward,
                             const View& d_sinks) {
  const FpEnvGuard guard;
  const AttentionCall call(q, k, v, options, kOp);
  check_view(d_out, kOp, "d_out");
  check(is_value(d_out.dtype), ErrorCode::wrong_type, kOp,
        "d_out holds codes; expected float64, float32, float16 or bfloat16");
  if (d_out.shape != call.out_shape())
    fail(ErrorCode::invalid_argument, kOp, "d_out has shape ", to_string(d_out.shape),
         "; expected ", to_string(call.out_shape()));
  check(options.ranges.empty(), ErrorCode::invalid_argument, kOp,
        "gradients are of all rows; got ranges");
  check_gradient(d_q, q.shape(), "dQ");
  check_gradient(d_k, k.shape(), "dK");
  check_gradient(d_v, v.shape(), "dV");
  const bool has_forward = is_given(forward.out) || is_given(forward.log_sum_exp);
  std::vector<NamedView> views{{&d_out, "d_out"}, {&d_q, "dQ"}, {&d_k, "dK"}, {&d_v, "dV"}};
  if (is_given(d_sinks)) {
    check_sink_gradient(d_sinks, call);
    views.push_back({&d_sinks, "the gradient of the sinks"});
  }
  if (has_forward) {
    check_forward(forward, call);
    views.push_back({&forward.out, "the output"});
    views.push_back({&forward.log_sum_exp, "log_sum_exp"});
  }
  const Exec exec = exec_of(call, views);
  // exact: values are not even rounded to f32.
  const bool exact = options.rung == AttentionRung::exact,
             on_device = exec.device.kind != DeviceKind::cpu;
  AttentionInputs inputs =
      exact || on_device ? AttentionInputs{} : inputs_of(call, options.rung, exec);
  RungInputs of_rung{};
  AttentionBackwardJob job{.forward = call.job()};
  const auto operand = [](const Operand& of) {
    return AttentionStack(of, kOp, "a copy").operand();
  };
  if (on_device) {
    set_inputs_on_device(job, call, exec, inputs, of_rung);
  } else if (exact) {
    job.forward.values = DType::f64;
  } else {
    job.forward.q = operand(inputs.q);
    job.forward.k = operand(inputs.k);
    job.forward.v = operand(inputs.v);
  }
  if (has_forward && !call.is_empty()) {
    job.forward.out = operand(forward.out);
    job.forward.log_sum_exp = static_cast<float*>(forward.log_sum_exp.data);
  }
  job.d_out = operand(d_out);
  job.d_q = operand(d_q);
  job.d_k = operand(d_k);
  job.d_v = operand(d_v);
  if (on_device) return run_on_device(exec, options, job, d_sinks);
  std::vector<double> of_sinks(static_cast<std::size_t>(call.q.heads()), 0.0);
  if (is_given(d_sinks)) job.d_sinks = of_sinks.data();
  run_attention_backward(exec, options, job);
  if (is_given(d_sinks)) store(of_sinks, d_sinks);
}

}  // namespace octavo
