#include "octavo/ops/produce.h"

#include <array>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/place_internal.h"
#include "octavo/quant/kernel_call_internal.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "produce";

void check_type(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16, ErrorCode::wrong_type,
        kOp, "the output is ", is_value(dtype) ? dtype_name(dtype) : "codes",
        "; expected float32, float16 or bfloat16: what is produced is rounded to float32 first");
}

}  // namespace

void produce_into(const Produced& values, const View& out, const ProduceOptions& options) {
  check_view(out, kOp, "the output");
  check_output(out, kOp);
  check_type(out.dtype);
  if (out.shape != values.shape) {
    fail(ErrorCode::invalid_argument, kOp, "the output has shape ", to_string(out.shape),
         "; expected ", to_string(values.shape));
  }
  const bool empty = element_count(values.x.shape) == 0;
  check(empty || !bytes_overlap(values.x, out), ErrorCode::invalid_argument, kOp,
        "the output overlaps the input; rows are read more than once: give other memory");
  const std::array<NamedView, 2> views{{{&values.x, "the input"}, {&out, "the output"}}};
  const Exec exec = make_exec_on(views, element_count(values.x.shape), options, kOp);
  const auto entry = offered(exec, options.backend, &Kernels::produce, kOp);
  // Rows stand alone, as they would in a quantization by rows: its plan is the one wanted.
  View x = values.x;
  x.shape = values.shape;
  const MatrixPlan plan = make_plan(x, out, out, Scaling{.tile = {1, 0}});
  const Producer& all = values.producer;
  const std::int64_t x_cols = plan.col.size * (all.gated ? 2 : 1);
  for_each_plan_matrix(
      plan, [&](std::int64_t x_offset, std::int64_t out_offset, std::int64_t, std::uint64_t first) {
        Producer producer = all;
        const std::int64_t row = static_cast<std::int64_t>(first) / plan.col.size;
        if (producer.mean != nullptr) producer.mean += row;
        if (producer.inv_std != nullptr) producer.inv_std += row;
        entry(exec,
              matrix_of(values.x, x_offset, plan.row.size, x_cols, plan.row.value_stride,
                        plan.col.value_stride),
              producer,
              matrix_of(out, out_offset, plan.row.size, plan.col.size, plan.row.code_stride,
                        plan.col.code_stride));
      });
}

Tensor produce(const Produced& values, const ProduceOptions& options) {
  const DType same = values.x.dtype == DType::f64 ? DType::f32 : values.x.dtype;
  const DType dtype = options.out.value_or(same);
  check_type(dtype);
  Tensor out = values_on(values.x.device, values.shape, dtype, options.stream);
  produce_into(values, out.view(), options);
  return out;
}

}  // namespace octavo
