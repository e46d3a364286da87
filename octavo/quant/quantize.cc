// The public entry points: check arguments, then run the quantization.
#include "octavo/quant/quantize.h"

#include "octavo/base/error.h"
#include "octavo/quant/produced.h"
#include "octavo/quant/quantization_internal.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

void check_same_scaling(const QuantizedTensor& out, std::string_view op) {
  const Scaling& scaling = out.scaling;
  check(scaling.rowwise == out.rowwise.exists() && scaling.columnwise == out.columnwise.exists(),
        ErrorCode::invalid_argument, op, "the result's memory does not fit its scaling");
}

}  // namespace

void quantize_into(const View& values, QuantizedTensor& out, const QuantizeOptions& options) {
  constexpr std::string_view kOp = "quantize";
  check_view(values, kOp, "the input");
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp,
        "the input holds codes; expected float64, float32, float16 or bfloat16; use requantize for "
        "codes with scales");
  check_scaling(out.scaling);
  check_same_scaling(out, kOp);
  if (values.shape != out.shape) {
    fail(ErrorCode::invalid_argument, kOp, "the input has shape ", to_string(values.shape),
         " and the result is for ", to_string(out.shape));
  }
  out.source = values.dtype;
  run_quantization({.view = values}, out, options, kOp);
}

QuantizedTensor quantize(const View& values, const Scaling& scaling,
                         const QuantizeOptions& options) {
  check_view(values, "quantize", "the input");
  QuantizedTensor out =
      make_quantized(values.shape, values.dtype, scaling, values.device, options.stream);
  quantize_into(values, out, options);
  return out;
}

void quantize_into(const Produced& values, QuantizedTensor& out, const QuantizeOptions& options) {
  constexpr std::string_view kOp = "quantize";
  check_scaling(out.scaling);
  check_same_scaling(out, kOp);
  if (values.shape != out.shape) {
    fail(ErrorCode::invalid_argument, kOp, "what is produced has shape ", to_string(values.shape),
         " and the result is for ", to_string(out.shape));
  }
  out.source = DType::f32;
  View view = values.x;
  view.shape = values.shape;
  run_quantization({.view = view, .producer = &values.producer}, out, options, kOp);
}

QuantizedTensor quantize(const Produced& values, const Scaling& scaling,
                         const QuantizeOptions& options) {
  QuantizedTensor out =
      make_quantized(values.shape, DType::f32, scaling, values.x.device, options.stream);
  quantize_into(values, out, options);
  return out;
}

void requantize_into(const QuantizedTensor& from, QuantizedTensor& out,
                     const QuantizeOptions& options) {
  constexpr std::string_view kOp = "requantize";
  check(from.rowwise.exists(), ErrorCode::invalid_argument, kOp,
        "the source has no rowwise copy; quantize it rowwise too");
  check(!from.scaling.hadamard.rowwise, ErrorCode::unsupported, kOp,
        "the source is Hadamard-transformed; dequantize it first");
  check_scaling(out.scaling);
  check_same_scaling(out, kOp);
  if (from.shape != out.shape) {
    fail(ErrorCode::invalid_argument, kOp, "the source has shape ", to_string(from.shape),
         " and the result is for ", to_string(out.shape));
  }
  out.source = DType::f32;
  const View& codes = from.rowwise.codes.view();
  const MatrixPlan plan = make_plan(codes, codes, from.rowwise.scales.view(), from.scaling);
  const QuantizationSource source{.view = codes, .quantized = &from};
  const MatrixPlan wanted = make_plan(
      codes, codes, out.rowwise.exists() ? out.rowwise.scales.view() : codes, out.scaling);
  check(plan.empty || (plan.is_one_matrix() && wanted.is_one_matrix() &&
                       plan.row.size == wanted.row.size && plan.col.size == wanted.col.size),
        ErrorCode::unsupported, kOp, "tiles of several rows in a tensor of shape ",
        to_string(from.shape), "; requantize its matrices one by one");
  run_quantization(source, out, options, kOp);
}

QuantizedTensor requantize(const QuantizedTensor& from, const Scaling& scaling,
                           const QuantizeOptions& options) {
  QuantizedTensor out =
      make_quantized(from.shape, DType::f32, scaling, from.device(), options.stream);
  requantize_into(from, out, options);
  return out;
}

}  // namespace octavo
