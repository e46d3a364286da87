// Checks everything, then hands matrices through the kernel door.
#include "octavo/quant/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/plan_internal.h"
#include "octavo/scale/hadamard.h"
#include "octavo/scale/tile_scale.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

// Fewer elements than this are not worth a second thread, nor asking how many there are.
constexpr std::int64_t kWorthThreads = 64 * 1024;

Exec make_exec(const Shape& shape, const QuantizeOptions& options, std::string_view op) {
  check(options.threads >= 0, ErrorCode::invalid_argument, op, "got threads = ", options.threads,
        ", wanted 0 (all) or more");
  const bool small = element_count(shape) < kWorthThreads;
  return {.threads = small ? 1 : options.threads > 0 ? options.threads : available_threads()};
}

template <typename Entry>
Entry offered(const QuantizeOptions& options, Entry Kernels::*entry) {
  const Kernels& kernels = options.backend != nullptr ? *options.backend : cpu_backend();
  return kernels.*entry != nullptr ? kernels.*entry : reference_backend().*entry;
}

std::byte* moved(const View& view, std::int64_t offset) {
  return static_cast<std::byte*>(view.data) + offset;
}

Matrix matrix_of(const View& view, std::int64_t offset, std::int64_t rows, std::int64_t cols,
                 std::int64_t row_pitch, std::int64_t col_stride) {
  return {.data = moved(view, offset),
          .dtype = view.dtype,
          .format = view.format,
          .packed = view.packed,
          .rows = rows,
          .cols = cols,
          .row_pitch = row_pitch,
          .col_stride = col_stride};
}

float* scalar_of(const Tensor& tensor) {
  return tensor.owner() != nullptr ? static_cast<float*>(tensor.view().data) : nullptr;
}

QuantizedMatrix quantized_matrix(const MatrixPlan& plan, const QuantizedCopy& copy,
                                 std::int64_t code_offset, std::int64_t scale_offset) {
  const View &codes = copy.codes.view(), &scales = copy.scales.view();
  const std::int64_t grid_rows = tile_count(plan.tile.rows, plan.row.size),
                     grid_cols = tile_count(plan.tile.cols, plan.col.size);
  return {.codes = matrix_of(codes, code_offset, plan.row.size, plan.col.size, plan.row.code_stride,
                             plan.col.code_stride),
          .scales = matrix_of(scales, scale_offset, grid_rows, grid_cols, plan.row.scale_stride,
                              plan.col.scale_stride),
          .tile = plan.tile,
          .tensor_scale = scalar_of(copy.tensor_scale)};
}

// The columnwise copy as a whole: dense matrices.
QuantizedMatrix transposed_matrix(const QuantizedCopy& copy, const Tile& tile) {
  const View &codes = copy.codes.view(), &scales = copy.scales.view();
  const Shape& shape = codes.shape;
  const bool per_tensor = scales.shape.rank() == 0;
  return {.codes = matrix_of(codes, 0, shape[0], shape[1], codes.strides[0], codes.strides[1]),
          .scales =
              matrix_of(scales, 0, tile_count(tile.rows, shape[0]), tile_count(tile.cols, shape[1]),
                        per_tensor ? 0 : scales.strides[0], per_tensor ? 0 : scales.strides[1]),
          .tile = tile,
          .tensor_scale = scalar_of(copy.tensor_scale)};
}

// What a quantization reads: values, or another quantization.
struct Source {
  View view{};  // of the values; for a quantization its codes
  const QuantizedTensor* quantized = nullptr;
};

class Quantization {
 public:
  Quantization(const Source& source, QuantizedTensor& out, const QuantizeOptions& options,
               std::string_view op)
      : source_(source),
        out_(out),
        options_(options),
        op_(op),
        exec_(make_exec(out.shape, options, op)),
        amax_entry_(offered(options, &Kernels::amax)) {
    const QuantizedCopy& shape_giver = out.scaling.rowwise ? out.rowwise : columns_as_rows();
    plan_ =
        make_plan(source.view, shape_giver.codes.view(), shape_giver.scales.view(), out.scaling);
    if (out.scaling.columnwise && !plan_.empty && out.shape.rank() > 1 &&
        !(plan_.is_one_matrix() && plan_.tile == out.scaling.tile)) {
      fail(ErrorCode::invalid_argument, op, "columnwise copies are of matrices; a tensor of shape ",
           to_string(out.shape),
           " with these strides, tile and axis is not one: make it contiguous, or reshape it");
    }
  }

  void run() {
    check_nan();
    find_tensor_scales();
    QuantizeJob job{.scale = out_.scaling.scale,
                    .encode = out_.scaling.encode,
                    .policy = out_.scaling.policy,
                    .percentile = out_.scaling.percentile,
                    .hadamard_rowwise = out_.scaling.hadamard.rowwise,
                    .hadamard_columnwise = out_.scaling.hadamard.columnwise,
                    .hadamard_signs = out_.scaling.hadamard.signs,
                    .given_inverse = options_.given_inverse};
    float shared_amax = 0;
    if (out_.scaling.tile == Tile{0, 0} && !plan_.is_one_matrix() && job.given_inverse == nullptr) {
      check(job.policy == AmaxPolicy::max, ErrorCode::unsupported, op_, "policy ",
            name_of(job.policy), " per tensor wants contiguous values");
      shared_amax = whole_amax(amax_of(job.scale));
      job.given_amax = &shared_amax;
    }
    float found = 0;
    Counts counts;
    if (options_.amax != nullptr) job.amax = &found;
    if (options_.counts != nullptr) job.counts = &counts;
    const auto entry = offered(options_, &Kernels::quantize);
    if (plan_.empty) store_empty();
    for_each_plan_matrix(plan_, [&](std::int64_t value_offset, std::int64_t code_offset,
                                    std::int64_t scale_offset, std::uint64_t first) {
      job.source = source_of(value_offset, code_offset, scale_offset);
      job.encode.first_index = out_.scaling.encode.first_index + first;
      if (out_.scaling.rowwise)
        job.rowwise = quantized_matrix(plan_, out_.rowwise, code_offset, scale_offset);
      if (out_.scaling.columnwise)
        job.columnwise = transposed_matrix(out_.columnwise, out_.scaling.tile);
      entry(exec_, job);
    });
    if (options_.amax != nullptr) *options_.amax = found;
    if (options_.counts != nullptr) *options_.counts = counts;
  }

 private:
  // Without a rowwise copy its shapes are still what the plan is made from; no memory is touched.
  const QuantizedCopy& columns_as_rows() {
    const Shape strides = dense_strides(out_.shape, DType::code, out_.scaling.format, false);
    View codes = code_view(nullptr, out_.scaling.format, {0});
    codes.shape = out_.shape;
    codes.strides = strides;
    imagined_.codes = Tensor::adopt(codes, nullptr);
    View scales = value_view(nullptr, DType::f32, {0});
    scales.shape = scale_shape(out_.shape, out_.scaling);
    scales.strides = dense_strides(scales.shape, DType::f32, {}, false);
    imagined_.scales = Tensor::adopt(scales, nullptr);
    return imagined_;
  }

  QuantizeSource source_of(std::int64_t value_offset, std::int64_t, std::int64_t) const {
    QuantizeSource source;
    if (source_.quantized == nullptr) {
      source.values = matrix_of(source_.view, value_offset, plan_.row.size, plan_.col.size,
                                plan_.row.value_stride, plan_.col.value_stride);
      return source;
    }
    // The source's own tiles: its plan has the same matrices, because both are dense.
    const QuantizedTensor& from = *source_.quantized;
    const MatrixPlan plan = make_plan(from.rowwise.codes.view(), from.rowwise.codes.view(),
                                      from.rowwise.scales.view(), from.scaling);
    source.quantized = quantized_matrix(plan, from.rowwise, 0, 0);
    return source;
  }

  [[nodiscard]] float whole_amax(AmaxOf of) const {
    float amax = 0;
    for_each_plan_matrix(
        plan_, [&](std::int64_t value, std::int64_t code, std::int64_t scale, std::uint64_t) {
          amax_entry_(exec_, source_of(value, code, scale), of, &amax);
        });
    return amax;
  }

  void check_nan() const {
    const Scaling& scaling = out_.scaling;
    if (scaling.format.has_nan() || scaling.encode.nan_input != NanInput::error ||
        amax_of(scaling.scale) == AmaxOf::all)
      return;
    check(!std::isnan(whole_amax(AmaxOf::all)), ErrorCode::invalid_argument, op_,
          "the input has NaN, and ", format_name(scaling.format),
          " cannot hold NaN; say what NaN becomes (nan: zero or max), or let it poison its tile "
          "(non_finite: poison)");
  }

  void find_tensor_scales() const {
    if (out_.scaling.scale.format != ScaleFormat::e4m3_f32) return;
    const AmaxOf of = out_.scaling.scale.arith == Arith::te ? AmaxOf::not_nan : AmaxOf::only_finite;
    const float scale = tensor_scale_of(out_.scaling.scale, out_.scaling.format, whole_amax(of));
    if (out_.scaling.rowwise) *scalar_of(out_.rowwise.tensor_scale) = scale;
    if (out_.scaling.columnwise) *scalar_of(out_.columnwise.tensor_scale) = scale;
  }

  // One scale for nothing at all is that of a tile of zeros.
  void store_empty() const {
    if (out_.scaling.tile != Tile{0, 0}) return;
    const std::uint32_t bits =
        options_.given_inverse != nullptr
            ? inverse_scale(out_.scaling.scale.format, *options_.given_inverse).bits
            : zero_scale(out_.scaling.scale, 1.0F).bits;
    for (const QuantizedCopy* copy : {&out_.rowwise, &out_.columnwise})
      if (copy->exists())
        std::memcpy(copy->scales.view().data, &bits,
                    static_cast<std::size_t>(copy->scales.nbytes()));
  }

  const Source& source_;
  QuantizedTensor& out_;
  const QuantizeOptions& options_;
  std::string_view op_;
  Exec exec_;
  decltype(Kernels::amax) amax_entry_;
  QuantizedCopy imagined_;
  MatrixPlan plan_;
};

void run_quantization(const Source& source, QuantizedTensor& out, const QuantizeOptions& options,
                      std::string_view op) {
  check(options.given_inverse == nullptr || out.scaling.tile == Tile{0, 0},
        ErrorCode::invalid_argument, op, "a given scale is one for the whole tensor; got tile ",
        out.scaling.tile.rows, "x", out.scaling.tile.cols);
  check(out.scaling.hadamard.rowwise || out.scaling.hadamard.columnwise
            ? source.view.dtype != DType::f64
            : true,
        ErrorCode::wrong_type, op, "the Hadamard transform is done in f32; got float64 values");
  Quantization(source, out, options, op).run();
}

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
        "the input holds codes, wanted float64, float32, float16 or bfloat16; use requantize for "
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
  QuantizedTensor out = make_quantized(values.shape, values.dtype, scaling);
  quantize_into(values, out, options);
  return out;
}

QuantizedTensor requantize(const QuantizedTensor& from, const Scaling& scaling,
                           const QuantizeOptions& options) {
  constexpr std::string_view kOp = "requantize";
  check(from.rowwise.exists(), ErrorCode::invalid_argument, kOp,
        "the source has no rowwise copy; quantize it rowwise too");
  check(!from.scaling.hadamard.rowwise, ErrorCode::unsupported, kOp,
        "the source is Hadamard-transformed; dequantize it first");
  QuantizedTensor out = make_quantized(from.shape, DType::f32, scaling);
  const View& codes = from.rowwise.codes.view();
  const MatrixPlan plan = make_plan(codes, codes, from.rowwise.scales.view(), from.scaling);
  const Source source{.view = codes, .quantized = &from};
  const MatrixPlan wanted =
      make_plan(codes, codes, out.rowwise.exists() ? out.rowwise.scales.view() : codes, scaling);
  check(plan.empty || (plan.is_one_matrix() && wanted.is_one_matrix() &&
                       plan.row.size == wanted.row.size && plan.col.size == wanted.col.size),
        ErrorCode::unsupported, kOp, "tiles of several rows in a tensor of shape ",
        to_string(from.shape), "; requantize its matrices one by one");
  run_quantization(source, out, options, kOp);
  return out;
}

void dequantize_into(const QuantizedTensor& from, const View& values,
                     const QuantizeOptions& options) {
  constexpr std::string_view kOp = "dequantize";
  check_view(values, kOp, "the output");
  check_output(values, kOp);
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp,
        "the output holds codes, wanted float64, float32, float16 or bfloat16");
  if (values.shape != from.shape) {
    fail(ErrorCode::invalid_argument, kOp, "the output has shape ", to_string(values.shape),
         ", wanted ", to_string(from.shape));
  }
  check(from.rowwise.exists() || from.columnwise.exists(), ErrorCode::invalid_argument, kOp,
        "there are no codes");
  const Exec exec = make_exec(from.shape, options, kOp);
  const auto entry = offered(options, &Kernels::dequantize);
  const int rank = from.shape.rank();
  if (!from.rowwise.exists()) {
    // The transpose: the output is seen with rows and columns exchanged.
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
  const bool turned =
      from.rowwise.exists() ? from.scaling.hadamard.rowwise : from.scaling.hadamard.columnwise;
  if (turned) {
    check(values.dtype == DType::f32 && from.rowwise.exists(), ErrorCode::unsupported, kOp,
          "a Hadamard-transformed tensor is turned back in float32, from its rowwise copy");
    const std::int64_t cols = rank == 0 ? 1 : from.shape[rank - 1];
    auto* all = static_cast<float*>(values.data);
    const std::int64_t count = element_count(from.shape);
    for (std::int64_t row = 0; cols >= kHadamardSize && row < count; row += cols)
      for (std::int64_t c = 0; c + kHadamardSize <= cols; c += kHadamardSize)
        inverse_hadamard16(all + row + c, from.scaling.hadamard.signs);
  }
}

Tensor dequantize(const QuantizedTensor& from, DType dtype, const QuantizeOptions& options) {
  Tensor values = Tensor::values(from.shape, dtype);
  dequantize_into(from, values.view(), options);
  return values;
}

float amax(const View& values, const QuantizeOptions& options, AmaxOf of) {
  constexpr std::string_view kOp = "amax";
  check_view(values, kOp, "the input");
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp, "the input holds codes, wanted values");
  const View codes = [&] {
    View imagined = code_view(nullptr, e4m3fn, {0});
    imagined.shape = values.shape;
    imagined.strides = dense_strides(values.shape, DType::code, e4m3fn, false);
    return imagined;
  }();
  const MatrixPlan plan = make_plan(values, codes, codes, {});
  const Exec exec = make_exec(values.shape, options, kOp);
  const auto entry = offered(options, &Kernels::amax);
  float result = 0;
  for_each_plan_matrix(plan, [&](std::int64_t offset, std::int64_t, std::int64_t, std::uint64_t) {
    QuantizeSource source;
    source.values = matrix_of(values, offset, plan.row.size, plan.col.size, plan.row.value_stride,
                              plan.col.value_stride);
    entry(exec, source, of, &result);
  });
  return result;
}

}  // namespace octavo
