// GEMM with quantized output, computed in row blocks.
#include <algorithm>
#include <numeric>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/place_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/gemm_operand_internal.h"
#include "octavo/ops/gemm_run_internal.h"
#include "octavo/ops/operand_rows_internal.h"
#include "octavo/quant/kernel_call_internal.h"
#include "octavo/quant/quantization_internal.h"

namespace octavo {
namespace {

// f32 elements of a row block: what a cache holds; on a device its L2, since GEMMs there need more
// rows to fill the SMs. And a minimum number of rows: small-M GEMMs have their own kernels, whose
// bits differ from those of the same rows in a larger GEMM.
constexpr std::int64_t kRowBlockElements = 1024 * 1024,
                       kRowBlockElementsOnDevice = 8 * kRowBlockElements, kLeastRows = 64;

constexpr std::string_view kOp = "gemm";

QuantizeOptions options_of(const GemmOptions& options) {
  return {.threads = options.threads,
          .backend = options.backend,
          .log = options.log,
          .stream = options.stream,
          .workspace = options.workspace};
}

// A device that aligns MX exponents (docs/numerics/gemm.md) chooses the method from all rows of A:
// a row block could get other bits.
bool is_aligned_as_a_whole(const OperandStack& a, const GemmOptions& options) {
  return a.elements().device.kind != DeviceKind::cpu &&
         options.accumulator == Accumulator::native && a.scaling() != nullptr &&
         a.scaling()->scale.format == ScaleFormat::e8m0;
}

// Row granularity of the result: multiples of it can be quantized separately; 0: none. An amax of
// the whole tensor, or a columnwise copy, whose tiles lie across rows, needs all of them.
std::int64_t rows_together(const OperandStack& a, const Shape& shape, const Scaling& scaling) {
  const bool along_last = scaling.axis == -1 || scaling.axis == 1;
  if (shape.rank() != 2 || a.lead().rank() != 0 || !along_last || scaling.columnwise ||
      scaling.tile.rows == 0 || scaling.scale.format == ScaleFormat::e4m3_f32 ||
      scaling.scale_order != ScaleOrder::row_major)
    return 0;
  const std::int64_t tile = rows_of_a_tile(a.scaling(), a.rows());
  return tile == 0 ? 0 : std::lcm(tile, std::min(scaling.tile.rows, shape[0]));
}

// Row blocks of the result are written while operands are still read.
void check_result(const GemmOperands& operands, const QuantizedTensor& out,
                  const GemmOptions& options) {
  const Shape& shape = operands.shape;
  const Scaling& scaling = out.scaling;
  check_scaling(scaling);
  if (out.shape != shape)
    fail(ErrorCode::invalid_argument, kOp, "the result is for ", to_string(out.shape),
         "; expected ", to_string(shape));
  check(scaling.rowwise == out.rowwise.exists() && scaling.columnwise == out.columnwise.exists(),
        ErrorCode::invalid_argument, kOp, "the result's memory does not fit its scaling");
  std::vector<NamedView> inputs, parts;
  operands.a.add_views(inputs);
  operands.b.add_views(inputs);
  if (is_given(options.bias)) inputs.push_back({&options.bias, "the bias"});
  if (is_given(options.residual)) inputs.push_back({&options.residual, "the residual"});
  name_parts(out, parts);
  for (const NamedView& input : inputs)
    for (const NamedView& part : parts)
      check(element_count(input.view->shape) == 0 || element_count(part.view->shape) == 0 ||
                !bytes_overlap(*input.view, *part.view),
            ErrorCode::invalid_argument, kOp, part.name, " of the result share memory with ",
            input.name, "; give other memory");
  inputs.insert(inputs.end(), parts.begin(), parts.end());
  (void)common_device(inputs, kOp);
}

// Products of checked operands into a result that is checked, or new.
void multiply_quantized(const GemmOperands& operands, QuantizedTensor& out,
                        const GemmOptions& options) {
  const Shape& shape = operands.shape;
  const Device device = operands.a.elements().device;
  GemmOptions part = options;
  const Exec exec{.device = device, .stream = options.stream};
  StagingMemory memory(exec);
  const auto values_of = [&](const Shape& part_shape) {
    const std::int64_t count = std::max<std::int64_t>(element_count(part_shape), 1);
    View values = value_view(memory.at_least(count), DType::f32, part_shape);
    values.device = device;
    return values;
  };
  const auto fill = [&](const GemmOperands& rows, const View& values, QuantizedTensor& to) {
    multiply(rows, {&values, "the output", true}, part);
    run_quantization({.view = values, .is_staging = true}, to, options_of(options), "quantize");
  };
  out.source = DType::f32;
  const std::int64_t together = is_aligned_as_a_whole(operands.a, options)
                                    ? 0
                                    : rows_together(operands.a, shape, out.scaling);
  const std::int64_t elements =
      device.kind == DeviceKind::cpu ? kRowBlockElements : kRowBlockElementsOnDevice;
  if (together == 0 || element_count(shape) <= elements)
    return fill(operands, values_of(shape), out);
  // Checked for the whole result: a row block of a wrong residual would fit.
  if (options.residual.data != nullptr && options.residual.shape != shape)
    fail(ErrorCode::invalid_argument, kOp, "the residual has shape ",
         to_string(options.residual.shape), "; expected ", to_string(shape));
  const std::int64_t rows = shape[0], wanted = std::max(kLeastRows, elements / shape[1]);
  const std::int64_t row_block = (wanted + together - 1) / together * together;
  const View most = values_of({std::min(row_block + kLeastRows, rows), shape[1]});
  for (std::int64_t row = 0, count = 0; row < rows; row += count) {
    const bool is_short_tail = rows - row - row_block < kLeastRows;
    count = is_short_tail ? rows - row : row_block;
    if (options.residual.data != nullptr) part.residual = rows_of(options.residual, row, count);
    QuantizedTensor to = rows_of(out, row, count);
    fill({operands.a.rows_from(row, count), operands.b, {count, shape[1]}}, rows_of(most, 0, count),
         to);
    // B is aligned again for each row block, independently of A: the count of the first block is
    // that of all. A is not aligned, otherwise there would be no row blocks.
    part.aligned = nullptr;
  }
}

}  // namespace

void gemm_quantized_into(const Operand& a, const Operand& b, QuantizedTensor& out,
                         const GemmOptions& options) {
  gemm_quantized_into(checked_operands(a, b), out, options);
}

QuantizedTensor gemm_quantized(const Operand& a, const Operand& b, const Scaling& scaling,
                               const GemmOptions& options) {
  return gemm_quantized(checked_operands(a, b), scaling, options);
}

void gemm_quantized_into(const GemmOperands& operands, QuantizedTensor& out,
                         const GemmOptions& options) {
  check_result(operands, out, options);
  multiply_quantized(operands, out, options);
}

QuantizedTensor gemm_quantized(const GemmOperands& operands, const Scaling& scaling,
                               const GemmOptions& options) {
  QuantizedTensor out = make_quantized(operands.shape, DType::f32, scaling,
                                       operands.a.elements().device, options.stream);
  multiply_quantized(operands, out, options);
  return out;
}

}  // namespace octavo
