#include "octavo/ops/gemm.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/convert/device_tensor.h"
#include "octavo/convert/fold_internal.h"
#include "octavo/convert/place_internal.h"
#include "octavo/ops/gemm_operand_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "gemm";

bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

Shape shape_of(const OperandStack& a, const OperandStack& b) {
  if (a.depth() != b.depth())
    fail(ErrorCode::invalid_argument, kOp, "A has shape ", to_string(a.elements().shape),
         " and B has shape ", to_string(b.elements().shape), ": K is ", a.depth(), " in A and ",
         b.depth(), " in B; the product is [M, K] x [N, K]^T, so both end with the same K",
         a.depth() == b.rows() ? " (B looks like [K, N]: give its transpose)" : "");
  const Shape a_lead = a.lead(), b_lead = b.lead();
  if (a_lead != b_lead && a_lead.rank() > 0 && b_lead.rank() > 0)
    fail(ErrorCode::invalid_argument, kOp, "A is a batch of ", to_string(a_lead),
         " and B is a batch of ", to_string(b_lead),
         "; wanted the same leading dimensions, or one operand without any");
  const Shape& lead = a_lead.rank() > 0 ? a_lead : b_lead;
  std::vector<std::int64_t> sizes(lead.sizes().begin(), lead.sizes().end());
  sizes.push_back(a.rows());
  sizes.push_back(b.rows());
  return Shape(sizes);
}

// The transform of a row leaves its products with others as they were only if those were turned the
// same way.
void check_hadamard(const Operand& a, const Operand& b) {
  const auto turned = [](const Operand& operand) {
    return operand.quantized() != nullptr && operand.quantized()->scaling.hadamard.rowwise;
  };
  const bool a_is = turned(a), b_is = turned(b);
  if (!a_is && !b_is) return;
  const bool both = a_is && b_is;
  check(both && a.quantized()->scaling.hadamard.signs == b.quantized()->scaling.hadamard.signs,
        ErrorCode::invalid_argument, kOp,
        both   ? "A and B are Hadamard-transformed with other signs"
        : a_is ? "A is Hadamard-transformed and B is not"
               : "A is not Hadamard-transformed and B is",
        "; the transforms cancel only where both operands have the same one");
}

void check_types(const View& out, const GemmOptions& options, const Operand& a, const Operand& b) {
  const bool wide = options.accumulator == Accumulator::f64;
  check(out.dtype == DType::f32 || out.dtype == DType::f16 || out.dtype == DType::bf16 ||
            (wide && out.dtype == DType::f64),
        ErrorCode::wrong_type, kOp, "the output is ",
        is_value(out.dtype) ? dtype_name(out.dtype) : "codes",
        ", wanted float32, float16 or bfloat16 (float64 with the float64 accumulator; for codes "
        "see gemm_quantized)");
  if (options.accumulator != Accumulator::hopper_fp8) return;
  for (const Operand* operand : {&a, &b}) {
    const bool is_fp8 =
        operand->quantized() != nullptr && (operand->quantized()->scaling.format == e4m3fn ||
                                            operand->quantized()->scaling.format == e5m2);
    check(
        is_fp8, ErrorCode::wrong_type, kOp, operand == &a ? "A" : "B",
        " is not e4m3fn or e5m2, which is what the FP8 tensor cores multiply; quantize it, or use "
        "another accumulator");
  }
  check(options.promote_every >= 0 && options.promote_every % 32 == 0, ErrorCode::invalid_argument,
        kOp, "got promote_every = ", options.promote_every,
        ", wanted a multiple of 32 (what one instruction sums), or 0 for never");
}

void check_beside_out(const View& view, const Shape& wanted, std::string_view name) {
  check_view(view, kOp, name);
  check(is_value(view.dtype), ErrorCode::wrong_type, kOp, name,
        " holds codes, wanted float64, float32, float16 or bfloat16");
  if (view.shape != wanted)
    fail(ErrorCode::invalid_argument, kOp, name, " has shape ", to_string(view.shape), ", wanted ",
         to_string(wanted));
}

// Who does it: the reference where the backend has no kernel for it.
const Kernels& chosen(const Exec& exec, const GemmOptions& options, const GemmJob& job) {
  const auto offers = [&](const Kernels& kernels) {
    return kernels.gemm != nullptr &&
           (kernels.gemm_offered == nullptr || kernels.gemm_offered(job));
  };
  if (exec.device.kind != DeviceKind::cpu) {
    const Kernels& kernels = device_backend(exec.device, options.backend, kOp);
    check(offers(kernels), ErrorCode::unsupported, kOp, "backend '", kernels.name,
          "' does not offer this product; copy to the CPU (to_host) and do it there");
    return kernels;
  }
  const Kernels& kernels = checked_cpu_backend(options.backend, kOp);
  if (offers(kernels)) return kernels;
  const bool defined_there =
      job.accumulator == Accumulator::f64 || job.accumulator == Accumulator::hopper_fp8;
  if (exec.log != nullptr && !defined_there)
    exec.log->once(text("[gemm] backend '", kernels.name,
                        "' does not offer it; 'reference' does it instead, slowly"));
  return reference_backend();
}

// Products that are worth a thread are as long as conversions of this many elements.
std::int64_t work_of(const Shape& out, std::int64_t depth) {
  constexpr double kProductsPerElement = 64.0;
  const double products = static_cast<double>(element_count(out)) * static_cast<double>(depth);
  return static_cast<std::int64_t>(
      std::min(products / kProductsPerElement,
               static_cast<double>(std::numeric_limits<std::int64_t>::max() / 2)));
}

// Calls visit(position) for every matrix of a batch.
template <typename Visit>
void for_each_position(const Shape& lead, Visit&& visit) {
  std::array<std::int64_t, kMaxRank> position{};
  if (element_count(lead) == 0) return;
  while (true) {
    visit(std::span<const std::int64_t>(position.data(), static_cast<std::size_t>(lead.rank())));
    int axis = lead.rank() - 1;
    for (; axis >= 0; --axis) {
      if (++position[static_cast<std::size_t>(axis)] < lead[axis]) break;
      position[static_cast<std::size_t>(axis)] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

Shape gemm_shape(const Operand& a, const Operand& b) {
  return shape_of(OperandStack(a, kOp, "A"), OperandStack(b, kOp, "B"));
}

void gemm_into(const Operand& a_operand, const Operand& b_operand, const View& out_view,
               const GemmOptions& options) {
  const FpEnvGuard guard;
  OperandStack a(a_operand, kOp, "A"), b(b_operand, kOp, "B");
  const Shape shape = shape_of(a, b);
  View out = out_view, residual = options.residual;
  check_view(out, kOp, "the output");
  check_output(out, kOp);
  check_types(out, options, a_operand, b_operand);
  check_hadamard(a_operand, b_operand);
  if (out.shape != shape)
    fail(ErrorCode::invalid_argument, kOp, "the output has shape ", to_string(out.shape),
         ", wanted ", to_string(shape));
  std::vector<NamedView> views;
  a.add_views(views);
  b.add_views(views);
  if (is_given(options.bias)) {
    check_beside_out(options.bias, {b.rows()}, "the bias");
    views.push_back({&options.bias, "the bias"});
  }
  if (is_given(residual)) {
    check_beside_out(residual, shape, "the residual");
    views.push_back({&options.residual, "the residual"});
  }
  for (const NamedView& input : views)
    check(element_count(input.view->shape) == 0 || element_count(shape) == 0 ||
              !bytes_overlap(*input.view, out),
          ErrorCode::invalid_argument, kOp, "the output shares memory with ", input.name,
          ", which is still read while parts of the output are written; give other memory");
  views.push_back({&out_view, "the output"});
  Exec exec = make_exec_on(common_device(views, kOp), work_of(shape, a.depth()), options, kOp);
  if (element_count(shape) == 0) return;

  // One matrix with many rows is faster than many with few.
  if (a.lead().rank() > 0 && b.lead().rank() == 0) {
    const auto folded = a.folded();
    const auto folded_residual = is_given(residual) ? with_rows_folded(residual) : residual;
    if (folded && folded_residual) {
      a = *folded;
      residual = *folded_residual;
      out = *with_rows_folded(out);
    }
  }
  // What a CPU is best at is the default of its kernels.
  const bool on_cpu = exec.device.kind == DeviceKind::cpu;
  const Accumulator accumulator =
      options.accumulator == Accumulator::native && on_cpu ? Accumulator::f32 : options.accumulator;
  const Shape lead = a.lead().rank() > 0 ? a.lead() : b.lead();
  StagingMemory memory(exec);
  for_each_position(lead, [&](std::span<const std::int64_t> position) {
    GemmJob job{.a = a.at(position),
                .b = b.at(position),
                .out = matrix_at(out, position),
                .accumulator = accumulator,
                .promote_every = options.promote_every};
    if (is_given(options.bias))
      job.bias = {.data = options.bias.data,
                  .dtype = options.bias.dtype,
                  .rows = 1,
                  .cols = b.rows(),
                  .row_pitch = 0,
                  .col_stride = options.bias.strides[0]};
    if (options.activation) job.activation = producer_kind(*options.activation);
    if (is_given(residual)) job.residual = matrix_at(residual, position);
    const Kernels& kernels = chosen(exec, options, job);
    const std::int64_t wanted =
        kernels.gemm_workspace != nullptr ? kernels.gemm_workspace(exec, job) : 0;
    if (wanted > static_cast<std::int64_t>(exec.workspace.size())) {
      void* bytes = memory.at_least((wanted + 3) / static_cast<std::int64_t>(sizeof(float)));
      exec.workspace = {static_cast<std::byte*>(bytes), static_cast<std::size_t>(wanted)};
    }
    kernels.gemm(exec, job);
  });
}

Tensor gemm(const Operand& a, const Operand& b, const GemmOptions& options) {
  const Shape shape = gemm_shape(a, b);
  const Device device = a.quantized() != nullptr ? a.quantized()->device() : a.values().device;
  Tensor out = values_on(device, shape, options.out, options.stream);
  gemm_into(a, b, out.view(), options);
  return out;
}

}  // namespace octavo
