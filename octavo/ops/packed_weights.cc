#include "octavo/ops/packed_weights.h"

#include <cstring>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/ops/gemm_operand_internal.h"
#include "octavo/ops/gemm_run_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "pack";

std::int64_t bytes_of(const Tensor& tensor) {
  return tensor.owner() == nullptr ? 0 : tensor.nbytes();
}

// Codes of four bits stay two in a byte; others are a byte each, where they were packed.
bool is_kept_packed(const Matrix& elements) {
  return elements.packed && elements.format.bits() == 4;
}

// A copy of rows; of values whatever their strides.
Tensor copied_rows(const View& from) {
  if (from.dtype == DType::code) return to_host(from);
  Tensor made = Tensor::values(from.shape, from.dtype);
  const auto bytes = static_cast<std::size_t>(element_bytes(from.dtype, from.format));
  auto* to = static_cast<std::byte*>(made.view().data);
  for (std::int64_t row = 0; row < from.shape[0]; ++row)
    for (std::int64_t col = 0; col < from.shape[1]; ++col, to += bytes)
      std::memcpy(
          to,
          static_cast<const std::byte*>(from.data) + row * from.strides[0] + col * from.strides[1],
          bytes);
  return made;
}

// Memory for whole panels.
Tensor panels_for(const Matrix& elements, const PanelOrder& order) {
  const std::int64_t rows = (elements.rows + order.cols - 1) / order.cols * order.cols;
  const Shape shape{rows, PanelOrder::padded_depth(elements.cols)};
  return elements.dtype == DType::code
             ? Tensor::codes(shape, elements.format, is_kept_packed(elements))
             : Tensor::values(shape, elements.dtype);
}

}  // namespace

std::int64_t PackedWeights::nbytes() const {
  return bytes_of(elements) + bytes_of(scales) + bytes_of(tensor_scale);
}

PackedWeights pack(const Operand& weights, const PackOptions& options) {
  const FpEnvGuard guard;
  const OperandStack stack(weights, kOp, "the matrix");
  const View& from = stack.elements();
  if (from.shape.rank() != 2)
    fail(ErrorCode::invalid_argument, kOp, "got weights of shape ", to_string(from.shape),
         "; expected [N, K]: pack the matrices of a stack one by one");
  check(
      from.device.kind == DeviceKind::cpu, ErrorCode::invalid_argument, kOp,
      "got weights on a device; expected memory of the CPU, whose matrix instructions read packed "
      "weights: a device multiplies them as they are");
  const Kernels& kernels = checked_cpu_backend(options.backend, kOp);
  PackedWeights made{.shape = from.shape, .backend = kernels.name};
  if (const QuantizedTensor* codes = weights.quantized()) {
    made.scaling = codes->scaling;
    made.scales = to_host(codes->rowwise.scales.view());
    if (codes->rowwise.tensor_scale.owner() != nullptr)
      made.tensor_scale = to_host(codes->rowwise.tensor_scale.view());
  }
  const GemmOperand operand = stack.at({});
  if (element_count(from.shape) > 0 && kernels.gemm_panels != nullptr) {
    GemmOperand as_packed = operand;
    Matrix& elements = as_packed.is_quantized() ? as_packed.quantized.codes : as_packed.values;
    elements.packed = is_kept_packed(elements);
    made.panels = kernels.gemm_panels(as_packed);
  }
  if (!made.panels.exists()) {
    made.elements = copied_rows(from);
    return made;
  }
  const Matrix& rows = operand.elements();
  made.elements = panels_for(rows, made.panels);
  Matrix to = rows;
  to.data = made.elements.view().data;
  to.packed = is_kept_packed(rows);
  to.panels = made.panels;
  const Exec exec = make_exec(element_count(from.shape), options.threads, nullptr, kOp);
  kernels.pack_panels(exec, rows, to);
  return made;
}

Shape gemm_shape(const Operand& a, const PackedWeights& b) { return checked_operands(a, b).shape; }

void gemm_into(const Operand& a, const PackedWeights& b, const View& out,
               const GemmOptions& options) {
  gemm_into(checked_operands(a, b), out, options);
}

Tensor gemm(const Operand& a, const PackedWeights& b, const GemmOptions& options) {
  return gemm(checked_operands(a, b), options);
}

QuantizedTensor gemm_quantized(const Operand& a, const PackedWeights& b, const Scaling& scaling,
                               const GemmOptions& options) {
  return gemm_quantized(checked_operands(a, b), scaling, options);
}

void gemm_quantized_into(const Operand& a, const PackedWeights& b, QuantizedTensor& out,
                         const GemmOptions& options) {
  gemm_quantized_into(checked_operands(a, b), out, options);
}

}  // namespace octavo
