#include "octavo/quant/align_exponents.h"

#include <vector>

#include "octavo/backend/align_job.h"
#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/kernel_call_internal.h"
#include "octavo/quant/quantization_internal.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/quant/scale_order.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

void check_mx(const Scaling& mx, std::string_view op) {
  const bool blocks = mx.tile == Tile{1, kMxBlock} && mx.scale.format == ScaleFormat::e8m0;
  check(blocks, ErrorCode::invalid_argument, op, "got ", describe(mx),
        "; expected MX: blocks of 1x32 with e8m0 scales, such as preset mxfp8");
  check(
      mx.format == e4m3fn || mx.format == e5m2, ErrorCode::wrong_type, op, "got codes of ",
      format_name(mx.format),
      "; expected e4m3fn or e5m2, which have exponents to spare; requantize to mxfp8 first, which "
      "keeps every number of FP4 and FP6");
  check(mx.axis == -1, ErrorCode::unsupported, op, "got blocks along axis ", mx.axis,
        "; expected them along the last one, which products sum over; quantize the transpose");
}

AlignTo align_to_of(const QuantizedTensor& out) {
  return out.scaling.tile.cols == kAlignRun ? AlignTo::blocks_of_128 : AlignTo::rows;
}

void check_result(const QuantizedTensor& out, const Shape& shape, const Scaling& mx,
                  std::string_view op) {
  if (out.shape != shape)
    fail(ErrorCode::invalid_argument, op, "the input has shape ", to_string(shape),
         " and the result is for ", to_string(out.shape));
  const Scaling wanted = aligned_scaling(mx, align_to_of(out));
  check(out.scaling == wanted && out.rowwise.exists() == wanted.rowwise &&
            out.columnwise.exists() == wanted.columnwise,
        ErrorCode::invalid_argument, op, "the result is for ", describe(out.scaling), "; expected ",
        describe(wanted), "; take memory from make_aligned");
}

// Calls the kernel on one copy. Its leading dimensions are collapsed into rows: codes have no gaps,
// and neither do scales of either order.
void align_copy(const Exec& exec, decltype(Kernels::align_exponents) entry,
                const QuantizedCopy& from, const QuantizedCopy& to, const Scaling& mx,
                const Scaling& aligned, std::int64_t* changed) {
  const auto plan_of = [](const QuantizedCopy& copy, const Scaling& scaling) {
    return make_plan(copy.codes.view(), copy.codes.view(), copy.scales.view(), scaling);
  };
  const MatrixPlan source = plan_of(from, mx), result = plan_of(to, aligned);
  if (source.empty) return;
  check(source.is_one_matrix() && (source.col.size == 1 || source.col.code_stride == 1),
        ErrorCode::unsupported, "align_exponents",
        "the codes have gaps between them; make them contiguous");
  entry(exec, {.from = quantized_matrix(source, from, 0, 0),
               .to = quantized_matrix(result, to, 0, 0),
               .changed = changed});
}

void align_copies(const QuantizedTensor& mx, QuantizedTensor& out, const QuantizeOptions& options,
                  std::int64_t* changed, std::string_view op) {
  const FpEnvGuard guard;
  std::vector<NamedView> views;
  name_parts(mx, views);
  name_parts(out, views);
  const Exec exec = exec_for(views, mx.shape, options, op);
  check_beside(exec, changed, alignof(std::int64_t), op, "changed");
  const auto entry = offered(exec, options.backend, &Kernels::align_exponents, op);
  if (mx.rowwise.exists())
    align_copy(exec, entry, mx.rowwise, out.rowwise, mx.scaling, out.scaling, changed);
  if (mx.columnwise.exists())
    align_copy(exec, entry, mx.columnwise, out.columnwise, mx.scaling, out.scaling, changed);
}

// Values to aligned codes in one fused pass, where the backend offers it; false: nothing was done.
bool quantize_at_once(const Exec& exec, const View& values, const Scaling& mx, QuantizedTensor& out,
                      const QuantizeOptions& options, std::int64_t* changed, std::string_view op) {
  // Calls with other outputs or with invalid options take the two-pass path.
  if (values.device.kind == DeviceKind::cpu || mx.columnwise || mx.hadamard != Hadamard{} ||
      options.counts != nullptr || options.amax != nullptr || options.given_amax != nullptr ||
      options.given_inv_scale != nullptr)
    return false;
  const Kernels& kernels = device_backend(exec.device, options.backend, op);
  const MatrixPlan plan =
      make_plan(values, out.rowwise.codes.view(), out.rowwise.scales.view(), out.scaling);
  if (kernels.quantize_aligned == nullptr || plan.empty || !plan.is_one_matrix()) return false;
  const QuantizedMatrix to = quantized_matrix(plan, out.rowwise, 0, 0);
  const FpEnvGuard guard;
  QuantizeJob job = job_of({.view = values}, mx, options);
  job.source.values = matrix_of(values, 0, plan.row.size, plan.col.size, plan.row.value_stride,
                                plan.col.value_stride);
  job.rowwise = {.codes = to.codes, .tile = mx.tile};
  return kernels.quantize_aligned(exec, job, to, changed);
}

// An MX tensor whose codes are in the memory of the aligned codes, and whose scales are in staging
// memory. No tensor owns those scales: name_parts skips them, because memory allocated during
// stream capture is not known to the device yet.
class MxFirst {
 public:
  MxFirst(const QuantizedTensor& out, const Scaling& mx, const Exec& exec)
      : tensor_(out), rowwise_(exec), columnwise_(exec) {
    tensor_.scaling = mx;
    take_scales(tensor_.rowwise, rowwise_);
    take_scales(tensor_.columnwise, columnwise_);
  }

  [[nodiscard]] QuantizedTensor& tensor() { return tensor_; }

 private:
  void take_scales(QuantizedCopy& copy, StagingMemory& memory) const {
    if (!copy.exists()) return;
    const Shape grid = scale_shape(copy.codes.shape(), tensor_.scaling);
    View view = code_view(memory.at_least(element_count(grid) / 4 + 1), e8m0fnu, grid);
    view.device = tensor_.device();
    view.strides = scale_strides(grid, 1, tensor_.scaling.scale_order);
    copy.scales = Tensor::adopt(view, nullptr);
  }

  QuantizedTensor tensor_;
  StagingMemory rowwise_, columnwise_;
};

// What `work` counts, on the host.
template <typename Work>
std::int64_t counted(Device device, const QuantizeOptions& options, std::string_view op,
                     const Work& work) {
  const Exec exec{.device = device, .stream = options.stream};
  check_may_wait(exec, op,
                 "no number can be returned to the host; use the call that ends in _into, which "
                 "counts on the device");
  if (device.kind == DeviceKind::cpu) {
    std::int64_t changed = 0;
    work(&changed);
    return changed;
  }
  StagingMemory memory(exec);
  auto* there = reinterpret_cast<std::int64_t*>(memory.at_least(2));
  clear_memory(exec, there, sizeof *there);
  work(there);
  std::int64_t changed = 0;
  copy_and_wait(exec, &changed, there, sizeof changed);
  return changed;
}

}  // namespace

Scaling aligned_scaling(const Scaling& mx, AlignTo to) {
  check_scaling(mx);
  check_mx(mx, "align_exponents");
  Scaling aligned = mx;
  aligned.tile = {1, to == AlignTo::rows ? 0 : kAlignRun};
  aligned.scale = {.format = ScaleFormat::f32, .rule = mx.scale.rule};
  aligned.policy = AmaxPolicy::max;
  aligned.scale_order = to == AlignTo::rows ? ScaleOrder::row_major : ScaleOrder::col_major;
  return aligned;
}

QuantizedTensor make_aligned(const Shape& shape, DType source, const Scaling& mx, AlignTo to,
                             Device device, void* stream) {
  return make_quantized(shape, source, aligned_scaling(mx, to), device, stream);
}

void align_exponents_into(const QuantizedTensor& mx, QuantizedTensor& out,
                          const QuantizeOptions& options, std::int64_t* changed) {
  constexpr std::string_view kOp = "align_exponents";
  check_mx(mx.scaling, kOp);
  check(mx.rowwise.exists() || mx.columnwise.exists(), ErrorCode::invalid_argument, kOp,
        "there are no codes");
  check_result(out, mx.shape, mx.scaling, kOp);
  out.source = mx.source;
  align_copies(mx, out, options, changed, kOp);
}

Aligned align_exponents(const QuantizedTensor& mx, AlignTo to, const QuantizeOptions& options) {
  check_mx(mx.scaling, "align_exponents");
  Aligned made;
  made.tensor = make_aligned(mx.shape, mx.source, mx.scaling, to, mx.device(), options.stream);
  made.changed = counted(mx.device(), options, "align_exponents", [&](std::int64_t* changed) {
    align_exponents_into(mx, made.tensor, options, changed);
  });
  return made;
}

void quantize_aligned_into(const View& values, const Scaling& mx, QuantizedTensor& out,
                           const QuantizeOptions& options, std::int64_t* changed) {
  constexpr std::string_view kOp = "quantize_aligned";
  check_view(values, kOp, "the input");
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp,
        "the input holds codes; expected float64, float32, float16 or bfloat16; use "
        "align_exponents for codes "
        "with scales");
  check_scaling(mx);
  check_mx(mx, kOp);
  check_result(out, values.shape, mx, kOp);
  std::vector<NamedView> views{{&values, "the input"}};
  name_parts(out, views);
  const Exec exec = exec_for(views, out.shape, options, kOp);
  check_beside(exec, changed, alignof(std::int64_t), kOp, "changed");
  out.source = values.dtype;
  if (quantize_at_once(exec, values, mx, out, options, changed, kOp)) return;
  MxFirst blocks(out, mx, {.device = values.device, .stream = options.stream});
  quantize_into(values, blocks.tensor(), options);
  align_copies(blocks.tensor(), out, options, changed, kOp);
}

Aligned quantize_aligned(const View& values, const Scaling& mx, AlignTo to,
                         const QuantizeOptions& options) {
  constexpr std::string_view kOp = "quantize_aligned";
  check_view(values, kOp, "the input");
  check_mx(mx, kOp);
  Aligned made;
  made.tensor = make_aligned(values.shape, values.dtype, mx, to, values.device, options.stream);
  made.changed = counted(values.device, options, kOp, [&](std::int64_t* changed) {
    quantize_aligned_into(values, mx, made.tensor, options, changed);
  });
  return made;
}

}  // namespace octavo
