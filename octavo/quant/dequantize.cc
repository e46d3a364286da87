// dequantize and amax: the operations that compute no scale.
#include <array>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/quant/kernel_call_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/scale/hadamard.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {

void dequantize_into(const QuantizedTensor& from, const View& values,
                     const QuantizeOptions& options) {
  const FpEnvGuard guard;  // some scalars are computed here, outside of the kernels
  constexpr std::string_view kOp = "dequantize";
  check_view(values, kOp, "the output");
  check_output(values, kOp);
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp,
        "the output holds codes; expected float64, float32, float16 or bfloat16");
  if (values.shape != from.shape) {
    fail(ErrorCode::invalid_argument, kOp, "the output has shape ", to_string(values.shape),
         "; expected ", to_string(from.shape));
  }
  check(from.rowwise.exists() || from.columnwise.exists(), ErrorCode::invalid_argument, kOp,
        "there are no codes");
  std::vector<NamedView> views{{&values, "the output"}};
  name_parts(from, views);
  const Exec exec = exec_for(views, from.shape, options, kOp);
  const bool rotated =
      from.rowwise.exists() ? from.scaling.hadamard.rowwise : from.scaling.hadamard.columnwise;
  if (rotated) {
    check_on_cpu(values, kOp, "a Hadamard-transformed tensor");
    check(values.dtype == DType::f32 && from.rowwise.exists(), ErrorCode::unsupported, kOp,
          "the inverse Hadamard transform is done in float32, from the rowwise copy");
  }
  const auto entry = offered(exec, options.backend, &Kernels::dequantize, kOp);
  if (!from.rowwise.exists()) {
    // The transpose: the output view has rows and columns swapped.
    const QuantizedMatrix matrix = transposed_matrix(from.columnwise, from.scaling.tile);
    const std::int64_t bytes = element_bytes(values.dtype, values.format);
    entry(exec, matrix,
          matrix_of(values, 0, matrix.codes.rows, matrix.codes.cols, bytes,
                    bytes * matrix.codes.rows));
  } else {
    const MatrixPlan plan =
        make_plan(values, from.rowwise.codes.view(), from.rowwise.scales.view(), from.scaling);
    for_each_plan_matrix(plan, [&](std::int64_t value_offset, std::int64_t code_offset,
                                   std::int64_t scale_offset, std::uint64_t) {
      entry(exec, quantized_matrix(plan, from.rowwise, code_offset, scale_offset),
            matrix_of(values, value_offset, plan.row.size, plan.col.size, plan.row.value_stride,
                      plan.col.value_stride));
    });
  }
  if (rotated) {
    const int rank = from.shape.rank();
    const std::int64_t cols = rank == 0 ? 1 : from.shape[rank - 1];
    auto* all = static_cast<float*>(values.data);
    const std::int64_t count = element_count(from.shape);
    for (std::int64_t row = 0; cols >= kHadamardSize && row < count; row += cols)
      for (std::int64_t c = 0; c + kHadamardSize <= cols; c += kHadamardSize)
        inverse_hadamard16(all + row + c, from.scaling.hadamard.signs);
  }
}

Tensor dequantize(const QuantizedTensor& from, DType dtype, const QuantizeOptions& options) {
  Tensor values = values_on(from.device(), from.shape, dtype, options.stream);
  dequantize_into(from, values.view(), options);
  return values;
}

void raise_amax(const View& values, float* result, const QuantizeOptions& options, AmaxOf of) {
  constexpr std::string_view kOp = "amax";
  check_view(values, kOp, "the input");
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp,
        "the input holds codes; expected values");
  const MatrixPlan plan = make_plan(values, {});
  const Exec exec = exec_for({{&values, "the input"}}, values.shape, options, kOp);
  check_beside(exec, result, alignof(float), kOp, "the result");
  const auto entry = offered(exec, options.backend, &Kernels::amax, kOp);
  for_each_plan_matrix(plan, [&](std::int64_t offset, std::int64_t, std::int64_t, std::uint64_t) {
    QuantizeSource source;
    source.values = matrix_of(values, offset, plan.row.size, plan.col.size, plan.row.value_stride,
                              plan.col.value_stride);
    entry(exec, source, of, result);
  });
}

float amax(const View& values, const QuantizeOptions& options, AmaxOf of) {
  Exec exec{.device = values.device, .stream = options.stream, .workspace = options.workspace};
  check_may_wait(exec, "amax",
                 "no number can be returned to the host; record it on the device with raise_amax");
  const std::array<NamedView, 1> views{{{&values, "the input"}}};
  check_workspace(exec, views, "amax");
  Scratch scratch(exec);
  float* found = scratch.number();
  QuantizeOptions rest = options;
  rest.workspace = exec.workspace;
  raise_amax(values, found, rest, of);
  float result = 0;
  copy_and_wait(exec, &result, found, sizeof result);
  return result;
}

}  // namespace octavo
