// The public entry points: check arguments, then run the quantization.
#include "octavo/quant/quantize.h"

#include "octavo/base/error.h"
#include "octavo/quant/produced.h"
#include "octavo/quant/quantization_internal.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kQuantize = "quantize", kRequantize = "requantize";

void check_values(const View& values, const Hadamard& hadamard) {
  check_view(values, kQuantize, "the input");
  check(is_value(values.dtype), ErrorCode::wrong_type, kQuantize,
        "the input holds codes; expected float64, float32, float16 or bfloat16; use requantize for "
        "codes with scales");
  check(values.dtype != DType::f64 || (!hadamard.rowwise && !hadamard.columnwise),
        ErrorCode::wrong_type, kQuantize,
        "the Hadamard transform is done in f32; got float64 values");
}

void check_codes(const QuantizedTensor& from) {
  check(from.rowwise.exists(), ErrorCode::invalid_argument, kRequantize,
        "the source has no rowwise copy; quantize it rowwise too");
  check(!from.scaling.hadamard.rowwise, ErrorCode::unsupported, kRequantize,
        "the source is Hadamard-transformed; dequantize it first");
}

// Checks the caller's result for a source of this shape.
void check_result(const QuantizedTensor& out, const Shape& shape, std::string_view source,
                  std::string_view op) {
  check_scaling(out.scaling);
  check(out.scaling.rowwise == out.rowwise.exists() &&
            out.scaling.columnwise == out.columnwise.exists(),
        ErrorCode::invalid_argument, op, "the result's memory does not fit its scaling");
  if (shape != out.shape)
    fail(ErrorCode::invalid_argument, op, source, " has shape ", to_string(shape),
         " and the result is for ", to_string(out.shape));
}

// Checks an amax or scale that the caller gives. The amax of the whole tensor makes a scale only
// where one scale covers the whole tensor.
void check_given(const Scaling& scaling, const QuantizeOptions& options, std::string_view op) {
  const bool per_tensor = scaling.tile == Tile{0, 0};
  check(options.given_inv_scale == nullptr || per_tensor, ErrorCode::invalid_argument, op,
        "a given scale is one for the whole tensor; got tile ", scaling.tile.rows, "x",
        scaling.tile.cols);
  if (options.given_amax == nullptr) return;
  check(per_tensor || scaling.scale.format == ScaleFormat::e4m3_f32, ErrorCode::invalid_argument,
        op, "a given amax is that of the whole tensor; got tile ", scaling.tile.rows, "x",
        scaling.tile.cols, " without a second level of scales");
  check(scaling.policy == AmaxPolicy::max || !per_tensor, ErrorCode::invalid_argument, op,
        "got a given amax and policy ", name_of(scaling.policy),
        ", which computes its own; leave out one");
  check(options.given_inv_scale == nullptr, ErrorCode::invalid_argument, op,
        "got both a given amax and a given inv_scale; leave out one");
}

QuantizationSource source_of(const Produced& values) {
  QuantizationSource source{.view = values.x, .producer = &values.producer};
  source.view.shape = values.shape;
  return source;
}

// From checked codes into a checked or new result.
void requantize_checked(const QuantizedTensor& from, QuantizedTensor& out,
                        const QuantizeOptions& options) {
  const View& codes = from.rowwise.codes.view();
  const MatrixPlan plan = make_plan(codes, codes, from.rowwise.scales.view(), from.scaling);
  const MatrixPlan wanted = make_plan(
      codes, codes, out.rowwise.exists() ? out.rowwise.scales.view() : codes, out.scaling);
  check(plan.empty || (plan.is_one_matrix() && wanted.is_one_matrix() &&
                       plan.row.size == wanted.row.size && plan.col.size == wanted.col.size),
        ErrorCode::unsupported, kRequantize, "tiles of several rows in a tensor of shape ",
        to_string(from.shape), "; requantize its matrices one by one");
  run_quantization({.view = codes, .quantized = &from}, out, options, kRequantize);
}

}  // namespace

QuantizedTensor quantize(const View& values, const Scaling& scaling,
                         const QuantizeOptions& options) {
  check_values(values, scaling.hadamard);
  check_given(scaling, options, kQuantize);
  QuantizedTensor out =
      make_quantized(values.shape, values.dtype, scaling, values.device, options.stream);
  run_quantization({.view = values}, out, options, kQuantize);
  return out;
}

void quantize_into(const View& values, QuantizedTensor& out, const QuantizeOptions& options) {
  check_values(values, out.scaling.hadamard);
  check_result(out, values.shape, "the input", kQuantize);
  check_given(out.scaling, options, kQuantize);
  out.source = values.dtype;
  run_quantization({.view = values}, out, options, kQuantize);
}

QuantizedTensor quantize(const Produced& values, const Scaling& scaling,
                         const QuantizeOptions& options) {
  check_given(scaling, options, kQuantize);
  QuantizedTensor out =
      make_quantized(values.shape, DType::f32, scaling, values.x.device, options.stream);
  run_quantization(source_of(values), out, options, kQuantize);
  return out;
}

void quantize_into(const Produced& values, QuantizedTensor& out, const QuantizeOptions& options) {
  check_result(out, values.shape, "what is produced", kQuantize);
  check_given(out.scaling, options, kQuantize);
  out.source = DType::f32;
  run_quantization(source_of(values), out, options, kQuantize);
}

QuantizedTensor requantize(const QuantizedTensor& from, const Scaling& scaling,
                           const QuantizeOptions& options) {
  check_codes(from);
  check_given(scaling, options, kRequantize);
  QuantizedTensor out =
      make_quantized(from.shape, DType::f32, scaling, from.device(), options.stream);
  requantize_checked(from, out, options);
  return out;
}

void requantize_into(const QuantizedTensor& from, QuantizedTensor& out,
                     const QuantizeOptions& options) {
  check_codes(from);
  check_result(out, from.shape, "the source", kRequantize);
  check_given(out.scaling, options, kRequantize);
  out.source = DType::f32;
  requantize_checked(from, out, options);
}

}  // namespace octavo
