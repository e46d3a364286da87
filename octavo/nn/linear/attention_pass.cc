#include "octavo/nn/linear/attention_pass.h"

#include <mutex>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/nn/linear/linear_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "DotProductAttention";

Tensor new_output(const AttentionPassCall& call, const Shape& shape, DType dtype) {
  return call.run.make ? call.run.make(value_view(nullptr, dtype, shape))
                       : values_on(call.q.device, shape, dtype, call.run.stream);
}

bool gathers_amaxes(const AttentionPassCall& call) {
  return !is_again(call.scales) && (call.autocast.calibrating || call.training);
}

AttentionOptions options_of(const AttentionPassCall& call) {
  AttentionOptions options = call.options;
  options.threads = call.run.threads;
  options.backend = call.run.backend;
  options.log = call.run.log;
  options.stream = call.run.stream;
  return options;
}

DType output_type(const AttentionPassCall& call, AttentionRung rung) {
  return call.q.dtype == DType::f64 && rung != AttentionRung::exact ? DType::f32 : call.q.dtype;
}

Tensor plain_output(const AttentionPassCall& call, const Shape& shape) {
  const AttentionOptions options = options_of(call);
  Tensor out = new_output(call, shape, output_type(call, options.rung));
  attention_into(call.q, call.k, call.v, out.view(), options);
  return out;
}

void calibrate(const AttentionPassCall& call, const View& out, QuantizerSet& set) {
  const auto held = set.held_state();
  const QuantizeOptions options{.threads = call.run.threads,
                                .backend = call.run.backend,
                                .log = call.run.log,
                                .stream = call.run.stream};
  set.of(TensorRole::query).calibrate(call.q, options);
  set.of(TensorRole::key).calibrate(call.k, options);
  set.of(TensorRole::value).calibrate(call.v, options);
  set.of(TensorRole::output).calibrate(out, options);
}

AttentionPassResult fp8_output(const AttentionPassCall& call, const Shape& shape,
                               const std::shared_ptr<QuantizerSet>& set) {
  const bool gathers = gathers_amaxes(call), codes_follow = call.autocast.recipe->fp8_mha();
  const auto codes = [&](TensorRole role, const View& values) {
    return quantized(*set, {role, true, false, gathers}, values, call.run);
  };
  AttentionPassResult result{.is_fp8 = true};
  result.q = codes(TensorRole::query, call.q);
  result.k = codes(TensorRole::key, call.k);
  result.v = codes(TensorRole::value, call.v);
  AttentionOptions options = options_of(call);
  options.rung = call.fp8_rung;
  result.out = new_output(call, shape, codes_follow ? DType::f32 : output_type(call, options.rung));
  if (codes_follow) result.output_quantizers = set;
  const auto held = set->held_state();
  if (gathers && set->has_state()) options.p_quantizer = &set->of(TensorRole::softmax);
  attention_into(result.q, result.k, result.v, result.out.view(), options);
  return result;
}

}  // namespace

ModuleQuantizersOptions attention_quantizers() {
  using enum TensorRole;
  return {.module_type = std::string(kOp),
          .role_type = "dpa",
          .forward = {query, key, value, softmax, output},
          .backward = {}};
}

bool asks_for_fp8_attention(const Recipe& recipe) {
  if (!recipe.fp8_dpa() && !recipe.fp8_mha()) return false;
  check(!recipe.nvfp4(), ErrorCode::unsupported, kOp, "the recipe is ", recipe.name(),
        " with fp8_dpa or fp8_mha, and its quantizers make FP4, which attention is not offered in; "
        "leave them false, or open a scope with another recipe around attention");
  return true;
}

AttentionPassResult attention_forward(const AttentionPassCall& call) {
  const AutocastState& scope = call.autocast;
  const bool has_recipe =
      (scope.enabled || scope.calibrating) && asks_for_fp8_attention(*scope.recipe);
  const Shape shape = attention_shape(call.q, call.k, call.v);
  if (!has_recipe) return {.out = plain_output(call, shape)};
  check(call.quantizers != nullptr, ErrorCode::invalid_argument, kOp,
        "a recipe asks for FP8; expected quantizers for it in the call");
  check(call.fp8_rung == AttentionRung::fast || call.fp8_rung == AttentionRung::strict,
        ErrorCode::invalid_argument, kOp, "got ", name_of(call.fp8_rung),
        " for FP8 attention; expected fast or strict");
  const auto lock = call.quantizers->lock();
  (void)call.quantizers->use(*scope.recipe, {}, false, call.run.stream);
  const std::shared_ptr<QuantizerSet> set = call.quantizers->forward();
  if (gathers_amaxes(call) && scope.region)
    scope.region->runs_forward({set, scope.amax_group, call.run.stream});
  if (scope.enabled) {
    const ScalesOfForward scales(*set, call.scales, call.run.stream);
    return fp8_output(call, shape, set);
  }
  AttentionPassResult result{.out = plain_output(call, shape)};
  if (!is_again(call.scales)) calibrate(call, result.out.view(), *set);
  return result;
}

QuantizedTensor attention_output_codes(const AttentionPassCall& call,
                                       const AttentionPassResult& result, const View& out) {
  check(result.output_quantizers != nullptr && call.quantizers != nullptr,
        ErrorCode::invalid_argument, kOp,
        "got an output that no recipe wants as codes; say fp8_mha = true");
  const auto lock = call.quantizers->lock();
  const ScalesOfForward scales(*result.output_quantizers, call.scales, call.run.stream);
  QuantizedTensor codes =
      quantized(*result.output_quantizers, {TensorRole::output, true, false, gathers_amaxes(call)},
                out, call.run);
  codes.source = call.q.dtype;
  return codes;
}

}  // namespace octavo
