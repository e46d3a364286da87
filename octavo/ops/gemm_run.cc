#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/base/product_threads.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/ops/gemm_run_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

void check_bf16(const GemmOperands& operands, std::string_view op) {
  for (const OperandStack* operand : {&operands.a, &operands.b}) {
    const Scaling* scaling = operand->scaling();
    const bool fits =
        scaling != nullptr ? fits_bf16(scaling->format) : operand->elements().dtype == DType::bf16;
    check(fits, ErrorCode::wrong_type, op, operand == &operands.a ? "A" : "B",
          " is neither bfloat16 nor codes that bfloat16 holds, which is what the tiles of AMX "
          "multiply; cast or quantize it, or use another accumulator");
  }
}

void check_types(const View& out, const GemmOptions& options, const GemmOperands& operands,
                 std::string_view op) {
  const bool wide = options.accumulator == Accumulator::f64;
  check(out.dtype == DType::f32 || out.dtype == DType::f16 || out.dtype == DType::bf16 ||
            (wide && out.dtype == DType::f64),
        ErrorCode::wrong_type, op, "the output is ",
        is_value(out.dtype) ? dtype_name(out.dtype) : "codes",
        "; expected float32, float16 or bfloat16 (float64 with the float64 accumulator; for codes "
        "see gemm_quantized)");
  if (options.accumulator == Accumulator::amx_bf16) check_bf16(operands, op);
  if (options.accumulator != Accumulator::hopper_fp8) return;
  for (const OperandStack* operand : {&operands.a, &operands.b}) {
    const Scaling* scaling = operand->scaling();
    const bool is_fp8 =
        scaling != nullptr && (scaling->format == e4m3fn || scaling->format == e5m2);
    check(
        is_fp8, ErrorCode::wrong_type, op, operand == &operands.a ? "A" : "B",
        " is not e4m3fn or e5m2, which is what the FP8 tensor cores multiply; quantize it, or use "
        "another accumulator");
  }
  check(options.promote_every >= 0 && options.promote_every % 32 == 0, ErrorCode::invalid_argument,
        op, "got promote_every = ", options.promote_every,
        "; expected a multiple of 32 (what one instruction sums), or 0 for never");
}

void check_beside_out(const View& view, const Shape& wanted, std::string_view name,
                      std::string_view op) {
  check_view(view, op, name);
  check(is_value(view.dtype), ErrorCode::wrong_type, op, name,
        " holds codes; expected float64, float32, float16 or bfloat16");
  if (view.shape != wanted)
    fail(ErrorCode::invalid_argument, op, name, " has shape ", to_string(view.shape), "; expected ",
         to_string(wanted));
}

// Work of a product in converted elements (64 multiply-adds each), to choose the number of threads.
std::int64_t work_of(std::int64_t elements, std::int64_t depth) {
  constexpr double kProductsPerElement = 64.0;
  const double products = static_cast<double>(elements) * static_cast<double>(depth);
  return static_cast<std::int64_t>(
      std::min(products / kProductsPerElement,
               static_cast<double>(std::numeric_limits<std::int64_t>::max() / 2)));
}

Exec checked_exec(const GemmOperands& operands, const NamedView& result, const GemmOptions& options,
                  std::string_view op) {
  const View& out = *result.view;
  const Shape& shape = operands.shape;
  const std::int64_t elements = element_count(shape);
  check_types(out, options, operands, op);
  std::vector<NamedView> views;
  operands.a.add_views(views);
  operands.b.add_views(views);
  if (is_given(options.bias)) {
    check_beside_out(options.bias, {operands.b.rows()}, "the bias", op);
    views.push_back({&options.bias, "the bias"});
  }
  if (is_given(options.residual)) {
    check_beside_out(options.residual, shape, "the residual", op);
    views.push_back({&options.residual, "the residual"});
  }
  for (const NamedView& input : views)
    check(
        element_count(input.view->shape) == 0 || elements == 0 || !bytes_overlap(*input.view, out),
        ErrorCode::invalid_argument, op, "the output shares memory with ", input.name,
        ", which is still read while parts of the output are written; give other memory");
  views.push_back(result);
  return make_exec_on(views, work_of(elements, operands.a.depth()), options, op, product_threads);
}

bool does(const Kernels& kernels, const GemmJob& job) {
  return kernels.gemm != nullptr && (kernels.gemm_offered == nullptr || kernels.gemm_offered(job));
}

// The promotion interval of devices: the default of GemmOptions.
constexpr std::int64_t kUsualRun = GemmOptions{}.promote_every;

// Description of an operand for error messages.
std::string described(const OperandStack& operand, const GemmOperand& as_done) {
  if (operand.scaling() == nullptr) return std::string(dtype_name(operand.elements().dtype));
  const Matrix& codes = as_done.elements();
  const bool gaps =
      !codes.packed && codes.cols > 1 && codes.col_stride != codes.format.code_bytes();
  return text(describe(*operand.scaling()), gaps ? ", codes with gaps along K" : "");
}

}  // namespace

bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

void check_result(const View& out, const Shape& shape, std::string_view op) {
  check_view(out, op, "the output");
  check_output(out, op);
  if (out.shape != shape)
    fail(ErrorCode::invalid_argument, op, "the output has shape ", to_string(out.shape),
         "; expected ", to_string(shape));
}

GemmRun::GemmRun(const GemmOperands& operands, const NamedView& out, const GemmOptions& options,
                 std::string_view op)
    : operands_(operands),
      options_(options),
      op_(op),
      exec_(checked_exec(operands, out, options, op)),
      memory_(exec_),
      count_memory_(exec_) {
  if (options.oblivious) check_oblivious();
  if (options.aligned == nullptr || !is_on_device()) return;
  check_may_wait(exec_, op,
                 "no count of aligned elements can be returned to the host; leave it out (aligned, "
                 "in Python return_aligned), or call align_exponents before, which counts them");
  static_assert(sizeof *aligned_ == 2 * sizeof(float));
  aligned_ = reinterpret_cast<unsigned long long*>(count_memory_.at_least(2));
  clear_memory(exec_, aligned_, sizeof *aligned_);
}

GemmJob GemmRun::job(const GemmOperand& a, const GemmOperand& b, const Matrix& out) const {
  // On a CPU `native` is f32.
  const bool is_default = options_.accumulator == Accumulator::native && !is_on_device();
  GemmJob job{.a = a,
              .b = b,
              .out = out,
              .accumulator = is_default ? Accumulator::f32 : options_.accumulator,
              .promote_every = options_.promote_every,
              .oblivious = options_.oblivious};
  if (job.accumulator == Accumulator::f16 && !is_on_device())
    for (GemmOperand* operand : {&job.a, &job.b})
      if (operand->is_quantized()) operand->largest_code = largest_code(operand->quantized.codes);
  if (is_given(options_.bias))
    job.bias = {.data = options_.bias.data,
                .dtype = options_.bias.dtype,
                .rows = 1,
                .cols = out.cols,
                .row_pitch = 0,
                .col_stride = options_.bias.strides[0]};
  if (options_.activation) job.activation = producer_kind(*options_.activation);
  job.aligned = aligned_;
  return job;
}

void GemmRun::check_oblivious() const {
  check(!is_on_device(), ErrorCode::unsupported, op_,
        "got oblivious with operands on a device, whose kernels are not proved data-oblivious; "
        "multiply on the CPU");
  check(options_.accumulator == Accumulator::native || options_.accumulator == Accumulator::f32,
        ErrorCode::unsupported, op_, "got oblivious with the accumulator ",
        name_of(options_.accumulator), "; expected native or float32");
}

bool GemmRun::offers(const GemmJob& job) const {
  return does(device_backend(exec_.device, options_.backend, op_), job);
}

void GemmRun::refuse(const Kernels& kernels, const GemmJob& job) const {
  const bool promotes = job.accumulator == Accumulator::hopper_fp8;
  const std::string what =
      text("this product: accumulator ", name_of(job.accumulator),
           promotes ? text(" with promote_every ", job.promote_every) : "", ", A ",
           described(operands_.a, job.a), ", B ", described(operands_.b, job.b));
  std::string others;
  const auto add_other = [&](const GemmJob& other, const std::string& name) {
    if (does(kernels, other)) others += text(others.empty() ? "use " : " or ", name);
  };
  GemmJob other = job;
  if (promotes && job.promote_every != kUsualRun) {
    other.promote_every = kUsualRun;
    add_other(other, text("promote_every ", kUsualRun));
  }
  for (const Accumulator accumulator : {Accumulator::native, Accumulator::f32}) {
    other.accumulator = accumulator;
    if (accumulator == job.accumulator) continue;
    add_other(other, text("accumulator ", name_of(accumulator)));
    if (does(kernels, other)) break;
  }
  fail_not_offered(kernels, op_, what, others.empty() ? others : others + ", or ");
}

void GemmRun::check_packed(const GemmJob& job) const {
  const PackedWeights* packed = operands_.b.in_panels();
  if (packed == nullptr) return;
  const std::string_view fix = "; multiply the weights as they were before pack";
  check(!is_on_device(), ErrorCode::invalid_argument, op_,
        "B is packed for a CPU, and A is on a device", fix);
  check(job.accumulator == Accumulator::f32, ErrorCode::unsupported, op_,
        "B is packed for the microkernels of ", packed->backend,
        ", which sum in float32; got the "
        "accumulator ",
        name_of(job.accumulator), fix);
  const Kernels& kernels = checked_cpu_backend(options_.backend, op_);
  check(packed->backend == kernels.name, ErrorCode::unsupported, op_, "B is packed for ",
        packed->backend, ", and this product runs on ", kernels.name,
        "; pack the weights for that backend");
}

// The reference where the backend has no kernel for it.
const Kernels& GemmRun::chosen(const GemmJob& job) const {
  check_packed(job);
  if (is_on_device()) {
    const Kernels& kernels = device_backend(exec_.device, options_.backend, op_);
    if (!does(kernels, job)) refuse(kernels, job);
    return kernels;
  }
  const Kernels& kernels = checked_cpu_backend(options_.backend, op_);
  if (does(kernels, job) && !(job.oblivious && &kernels == &reference_backend())) return kernels;
  check(!job.oblivious, ErrorCode::unsupported, op_, "backend '", kernels.name,
        "' has no data-oblivious kernel for it, and 'reference' branches on data");
  const bool defined_there = job.accumulator == Accumulator::f64 ||
                             job.accumulator == Accumulator::hopper_fp8 ||
                             job.accumulator == Accumulator::amx_bf16;
  if (exec_.log != nullptr && !defined_there)
    exec_.log->once(text("[gemm] backend '", kernels.name,
                         "' does not offer it; falls back to 'reference', which is slow"));
  return reference_backend();
}

void GemmRun::operator()(const GemmJob& job) {
  const Kernels& kernels = chosen(job);
  const std::int64_t wanted =
      kernels.gemm_workspace != nullptr ? kernels.gemm_workspace(exec_, job) : 0;
  if (wanted > static_cast<std::int64_t>(exec_.workspace.size())) {
    void* bytes = memory_.at_least((wanted + 3) / static_cast<std::int64_t>(sizeof(float)));
    exec_.workspace = {static_cast<std::byte*>(bytes), static_cast<std::size_t>(wanted)};
  }
  kernels.gemm(exec_, job);
}

void GemmRun::end() {
  if (aligned_ == nullptr) return;
  unsigned long long count = 0;
  copy_and_wait(exec_, &count, aligned_, sizeof count);
  *options_.aligned += static_cast<std::int64_t>(count);
}

}  // namespace octavo
