// Arguments of measure_error, checked and prepared for the pieces.
#include <algorithm>
#include <string_view>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/format/decode.h"
#include "octavo/quant/scale_order.h"
#include "octavo/report/piece_internal.h"
#include "octavo/scale/hadamard.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "error";

// [last, others], as the columnwise copy sees the values.
View transposed(const View& values) {
  View out = values;
  out.shape = transposed_shape(values.shape);
  const int rank = values.shape.rank();
  const std::int64_t bytes = element_bytes(values.dtype);
  std::int64_t row_stride = 0, collapsed = 1;
  for (int i = rank - 2; i >= 0; --i) {
    if (values.shape[i] == 1) continue;
    if (collapsed == 1) row_stride = values.strides[i];
    check(values.strides[i] == row_stride * collapsed, ErrorCode::invalid_argument, kOp,
          "the columnwise copy is of a matrix, and values of shape ", to_string(values.shape),
          " with these strides are none; make them contiguous");
    collapsed *= values.shape[i];
  }
  out.strides = {rank == 0 ? bytes : values.strides[rank - 1], row_stride};
  return out;
}

void check_arguments(const View& values, const QuantizedTensor& q, const MetricOptions& options) {
  check_view(values, kOp, "the input");
  check_on_cpu(values, kOp, "the input");
  for (const QuantizedCopy* copy : {&q.rowwise, &q.columnwise})
    for (const Tensor* part : {&copy->codes, &copy->scales, &copy->tensor_scale})
      check_on_cpu(part->view(), kOp, "the quantized tensor");
  check(
      is_value(values.dtype), ErrorCode::wrong_type, kOp,
      "the input holds codes; expected the float64, float32, float16 or bfloat16 values that were "
      "quantized");
  if (values.shape != q.shape)
    fail(ErrorCode::invalid_argument, kOp, "the input has shape ", to_string(values.shape),
         " and the quantized tensor ", to_string(q.shape), "; give what it was made of");
  check(q.rowwise.exists() || q.columnwise.exists(), ErrorCode::invalid_argument, kOp,
        "there are no codes");
  check(!options.columnwise || q.columnwise.exists(), ErrorCode::invalid_argument, kOp,
        "there is no columnwise copy; quantize with columnwise");
  check(options.threads >= 0 && options.threads <= kMaxThreads, ErrorCode::invalid_argument, kOp,
        "got threads = ", options.threads, "; expected 0 (all) to ", kMaxThreads);
}

}  // namespace

Measurement make_measurement(const View& values, const QuantizedTensor& q,
                             const MetricOptions& options) {
  check_arguments(values, q, options);
  const bool columnwise = options.columnwise || !q.rowwise.exists();
  Measurement job;
  job.values = columnwise ? transposed(values) : values;
  job.copy = columnwise ? &q.columnwise : &q.rowwise;
  job.scales = in_order(job.copy->scales, ScaleOrder::row_major);
  const View &codes = job.copy->codes.view(), &scales = job.scales.view();
  check(is_dense(codes), ErrorCode::invalid_argument, kOp, "codes must be dense");
  Scaling scaling = q.scaling;
  if (columnwise) scaling.axis = -1;
  job.plan = make_plan(job.values, codes, scales, scaling);
  job.tile_rows = tile_extent(job.plan.tile.rows, job.plan.row.size);
  job.tile_cols = tile_extent(job.plan.tile.cols, job.plan.col.size);
  const std::int64_t cols = job.plan.col.size;
  job.code_row_bytes = std::max<std::int64_t>(
      1, codes.packed ? packed_row_bytes(cols, codes.format) : cols * codes.format.code_bytes());
  job.scale_bytes = element_bytes(scales.dtype, scales.format);
  job.rows = options.rows;
  job.tiles = options.tiles;
  job.histograms = options.histograms;
  job.rotated = columnwise ? scaling.hadamard.columnwise : scaling.hadamard.rowwise;
  job.rotated_to_bf16 = rotates_to_bf16(scaling.scale.arith);
  job.signs = scaling.hadamard.signs;
  if (job.copy->tensor_scale.owner() != nullptr)
    job.tensor_scale = static_cast<double>(job.copy->tensor_scale.span<float>()[0]);
  const Format& format = codes.format;
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code)
    job.decoded.push_back(decode(format, code));
  // Half a step beyond the largest value: what rounds to nearest and has no neighbour to go to.
  const std::uint32_t top = format.max_field();
  const double half_step = top > 0 ? (decode(format, top) - decode(format, top - 1)) / 2 : 0.0;
  job.past_max = max_value(format) + half_step;
  job.past_lowest = lowest_value(format) - half_step;
  const Kernels& kernels = options.backend != nullptr ? *options.backend : cpu_backend();
  job.kernels = &kernels;
  job.decode_entry = kernels.decode != nullptr ? kernels.decode : reference_backend().decode;
  return job;
}

}  // namespace octavo
