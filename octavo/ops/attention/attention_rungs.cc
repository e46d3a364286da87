#include "octavo/ops/attention/attention_rungs_internal.h"

#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/exec/temporary_internal.h"
#include "octavo/format/named_formats.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention";
// P is at most 1, and 256 is below e4m3's largest value, 448; of f16 it leaves less subnormal.
constexpr float kPFactor = 256.0F;

Scaling per_token(const Format& format) {
  Scaling scaling = preset("fp8-channel");
  scaling.format = format;
  return scaling;
}

Scaling per_channel() {
  Scaling scaling = preset("fp8-channel");
  scaling.tile = {0, 1};
  return scaling;
}

// Into memory of the call.
QuantizedTensor unfilled(const View& values, const Scaling& scaling, const Exec& exec) {
  return make_quantized(values.shape, values.dtype, scaling,
                        [&exec](const View& like) { return temporary(exec, like); });
}
QuantizedTensor quantized(const View& values, const Scaling& scaling, Quantizer* quantizer,
                          const QuantizeOptions& options, const Exec& exec) {
  QuantizedTensor out =
      unfilled(values, quantizer != nullptr ? quantizer->scaling() : scaling, exec);
  if (quantizer != nullptr) {
    quantizer->quantize_into(values, out, options);
  } else {
    quantize_into(values, out, options);
  }
  return out;
}
QuantizedTensor quantized(const RungInputs& inputs, const View& values, const Scaling& scaling,
                          Quantizer* quantizer, const AttentionOptions& options, const Exec& exec) {
  if (inputs.is_plan)
    return unfilled(values, quantizer != nullptr ? quantizer->scaling() : scaling, exec);
  return quantized(values, scaling, quantizer, quantize_options(options), exec);
}

float* numbers_of(const Tensor& tensor) { return static_cast<float*>(tensor.view().data); }

AttentionOperand operand_of(const QuantizedTensor& tensor, std::string_view name) {
  return AttentionStack(Operand(tensor), kOp, name).operand();
}
AttentionOperand operand_of(const Tensor& tensor, std::string_view name) {
  return AttentionStack(Operand(tensor), kOp, name).operand();
}

// Padding must not enter a scale that real rows share.
void quantize_values(RungInputs& inputs, const AttentionCall& call, const Exec& exec) {
  if (call.v.is_quantized()) return;
  View values = call.v.elements();
  Tensor copy;
  if (!inputs.is_plan && !call.options.mask.key_lengths.empty()) {
    copy = prepared(call, call.v, call.options.mask.key_lengths, nullptr, false, false, exec);
    values = copy.view();
  }
  inputs.v = quantized(inputs, values, per_channel(), call.options.v_quantizer, call.options, exec);
  inputs.job.v = operand_of(inputs.v, "V");
}

void quantize_queries(RungInputs& inputs, const AttentionCall& call, const Format& format,
                      Quantizer* quantizer, const Exec& exec) {
  if (call.q.is_quantized()) return;
  View values = call.q.elements();
  Tensor copy;
  const bool is_padded = quantizer != nullptr && !call.options.mask.query_lengths.empty();
  if (!inputs.is_plan && (inputs.rotated || is_padded)) {
    copy = prepared(call, call.q, call.options.mask.query_lengths, nullptr, inputs.rotated, false,
                    exec);
    values = copy.view();
    inputs.prepared_q = copy;
  }
  inputs.q = quantized(inputs, values, per_token(format), quantizer, call.options, exec);
  inputs.job.q = operand_of(inputs.q, "Q");
}

void quantize_keys(RungInputs& inputs, const AttentionCall& call, const Format& format,
                   Quantizer* quantizer, bool smooth, const Exec& exec) {
  if (call.k.is_quantized()) return;
  View values = call.k.elements();
  Tensor copy;
  const std::int64_t batches = call.k.batches(), heads = call.k.heads(), depth = call.k.cols();
  const bool is_padded = quantizer != nullptr && !call.options.mask.key_lengths.empty();
  smooth &= !inputs.is_plan;
  if (smooth) inputs.mean = temporary_values(exec, {batches, heads, 1, depth}, DType::f32);
  if (!inputs.is_plan && (smooth || inputs.rotated || is_padded)) {
    copy = prepared(call, call.k, call.options.mask.key_lengths,
                    smooth ? numbers_of(inputs.mean) : nullptr, inputs.rotated, false, exec);
    values = copy.view();
    inputs.prepared_k = copy;
  }
  inputs.k = quantized(inputs, values, per_token(format), quantizer, call.options, exec);
  inputs.job.k = operand_of(inputs.k, "K");
  if (!smooth) return;
  inputs.memory_of_shift = inputs.mean;
  if (inputs.rotated)
    inputs.memory_of_shift = prepared(call, AttentionStack(inputs.mean, kOp, "the mean"), {},
                                      nullptr, true, false, exec);
  inputs.job.key_shift = numbers_of(inputs.memory_of_shift);
}

// Values in f16, beside codes and what is f16 already.
void narrow_to_f16(RungInputs& inputs, const AttentionCall& call, const Exec& exec) {
  const auto narrow = [&](const AttentionStack& from, Tensor& copy, AttentionOperand& to,
                          std::string_view name) {
    if (is_f16_or_codes(from)) return;
    const View values = from.elements();
    copy = temporary_values(exec, values.shape, DType::f16);
    if (!inputs.is_plan && element_count(values.shape) > 0)
      encode(values, code_view(copy.view().data, f16_format, values.shape),
             {.overflow = Overflow::ieee},
             {.threads = call.options.threads,
              .backend = call.options.backend,
              .log = call.options.log,
              .stream = call.options.stream});
    to = operand_of(copy, name);
  };
  narrow(call.q, inputs.halves_of_q, inputs.job.q, "Q");
  narrow(call.k, inputs.halves_of_k, inputs.job.k, "K");
  narrow(call.v, inputs.halves_of_v, inputs.job.v, "V");
}

// e4m3 as it comes, with a scale of one.
void cast_naively(RungInputs& inputs, const AttentionCall& call, const Exec& exec) {
  for (const AttentionStack* stack : {&call.q, &call.k, &call.v})
    check(!stack->is_quantized(), ErrorCode::invalid_argument, kOp,
          "'naive' casts values without scales; got codes, which have some");
  const float one = 1.0F;
  QuantizeOptions options = quantize_options(call.options);
  const Tensor there = temporary_values(exec, {1}, DType::f32);
  if (exec.device.kind == DeviceKind::cpu) {
    *numbers_of(there) = one;
  } else {
    device_api(exec.device).upload(exec, numbers_of(there), &one, sizeof one);
  }
  options.given_inv_scale = numbers_of(there);
  const auto cast = [&](const AttentionStack& stack) {
    return quantized(stack.elements(), preset("fp8"), nullptr, options, exec);
  };
  inputs.q = cast(call.q);
  inputs.k = cast(call.k);
  inputs.v = cast(call.v);
  inputs.job.q = operand_of(inputs.q, "Q");
  inputs.job.k = operand_of(inputs.k, "K");
  inputs.job.v = operand_of(inputs.v, "V");
}

}  // namespace

Tensor prepared(const AttentionCall& call, const AttentionStack& from,
                std::span<const std::int64_t> lengths, float* mean, bool hadamard, bool undo,
                const Exec& exec) {
  Tensor to =
      temporary_values(exec, {from.batches(), from.heads(), from.rows(), from.cols()}, DType::f32);
  if (element_count(to.shape()) == 0) {
    if (mean != nullptr && !undo)
      clear_memory(
          exec, mean,
          static_cast<std::size_t>(from.batches() * from.heads() * from.cols()) * sizeof(float));
    return to;
  }
  run_attention_prepare(exec, call.options,
                        {.batches = from.batches(),
                         .heads = from.heads(),
                         .from = from.operand(),
                         .to = operand_of(to, "a copy"),
                         .lengths = lengths.empty() ? nullptr : lengths.data(),
                         .mean = mean,
                         .hadamard = hadamard,
                         .undo = undo});
  return to;
}

namespace {

RungInputs made_inputs(const AttentionCall& call, AttentionRung rung, bool is_plan,
                       const Exec& exec) {
  RungInputs inputs{.job = call.job(), .is_plan = is_plan};
  AttentionJob& job = inputs.job;
  const AttentionOptions& options = call.options;
  switch (rung) {
    case AttentionRung::exact:
      job.values = DType::f64;
      job.p = AttentionP::f64;
      return inputs;
    case AttentionRung::f32:
      return inputs;
    case AttentionRung::bf16:
    case AttentionRung::automatic:
      job.values = DType::bf16;
      job.p = AttentionP::bf16;
      return inputs;
    case AttentionRung::f16:
      job.p = AttentionP::f16;
      job.p_factor = kPFactor;
      narrow_to_f16(inputs, call, exec);
      return inputs;
    case AttentionRung::strict:
      job.p = AttentionP::fp8_split;
      job.p_factor = kPFactor;
      quantize_queries(inputs, call, e4m3fn, options.q_quantizer, exec);
      quantize_keys(inputs, call, e4m3fn, options.k_quantizer, false, exec);
      quantize_values(inputs, call, exec);
      return inputs;
    case AttentionRung::balanced:
      check(!call.q.is_quantized() && !call.k.is_quantized(), ErrorCode::invalid_argument, kOp,
            "'balanced' smooths and rotates Q and K before it quantizes them; got codes: give "
            "values, or take 'strict' or 'fast'");
      job.values = DType::bf16;
      job.p = AttentionP::bf16;
      inputs.rotated = true;
      quantize_queries(inputs, call, mxint8, nullptr, exec);
      quantize_keys(inputs, call, mxint8, nullptr, !call.sees_level(), exec);
      return inputs;
    case AttentionRung::fast:
      job.p = AttentionP::fp8;
      job.p_factor = kPFactor;
      quantize_queries(inputs, call, e4m3fn, options.q_quantizer, exec);
      quantize_keys(inputs, call, e4m3fn, options.k_quantizer,
                    options.k_quantizer == nullptr && !call.sees_level(), exec);
      quantize_values(inputs, call, exec);
      return inputs;
    case AttentionRung::naive:
      job.p = AttentionP::fp8_normalized;
      if (!is_plan) cast_naively(inputs, call, exec);
      return inputs;
  }
  return inputs;
}

}  // namespace

RungInputs rung_inputs(const AttentionCall& call, AttentionRung rung, const Exec& exec) {
  return made_inputs(call, rung, false, exec);
}
RungInputs planned_inputs(const AttentionCall& call, AttentionRung rung, const Exec& exec) {
  return made_inputs(call, rung, true, exec);
}

}  // namespace octavo
