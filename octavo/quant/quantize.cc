// Checks everything, then hands matrices through the kernel door.
#include "octavo/quant/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/door_internal.h"
#include "octavo/quant/plan_internal.h"
#include "octavo/quant/produced.h"
#include "octavo/quant/staged_internal.h"
#include "octavo/scale/tile_scale.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

// What a quantization reads: values, what is produced from values, or another quantization.
struct Source {
  View view{};  // of the values; for a quantization its codes. Its shape is that of the result
  const QuantizedTensor* quantized = nullptr;
  const Producer* producer = nullptr;
};

// The backend whose quantize is called.
const Kernels& quantizing(const QuantizeOptions& options) {
  const Kernels& wanted = options.backend != nullptr ? *options.backend : cpu_backend();
  return wanted.quantize != nullptr ? wanted : reference_backend();
}

class Quantization {
 public:
  Quantization(const Source& source, QuantizedTensor& out, const QuantizeOptions& options,
               std::string_view op)
      : source_(source),
        out_(out),
        options_(options),
        op_(op),
        exec_(exec_for(out.shape, options, op)),
        quantize_entry_(entry_of(options, &Kernels::quantize, op)),
        amax_entry_(entry_of(options, &Kernels::amax, op)) {
    // Without a rowwise copy the plan is that of the one there could be.
    plan_ =
        out.scaling.rowwise
            ? make_plan(source.view, out.rowwise.codes.view(), out.rowwise.scales.view(),
                        out.scaling)
            : make_plan(source.view, shape_only(out.shape, DType::code, out.scaling.format),
                        shape_only(scale_shape(out.shape, out.scaling), DType::f32), out.scaling);
    if (out.scaling.columnwise && !plan_.empty && out.shape.rank() > 1 &&
        !(plan_.is_one_matrix() && plan_.tile == out.scaling.tile)) {
      const bool stack = plan_.tile == out.scaling.tile && out.scaling.tile.rows != 1;
      fail(ErrorCode::invalid_argument, op, "no columnwise copy of a tensor of shape ",
           to_string(out.shape), ": ",
           plan_.tile != out.scaling.tile
               ? "it is of the last dimension's transpose, and the scaling has another axis"
           : stack
               ? "tiles of several rows are of one matrix, and this is a stack; quantize its "
                 "matrices one by one"
               : "its leading dimensions do not follow each other in memory; make it contiguous");
    }
  }

  void run() {
    QuantizeJob job{.scale = spec_of(),
                    .encode = out_.scaling.encode,
                    .policy = out_.scaling.policy,
                    .percentile = out_.scaling.percentile,
                    .hadamard_rowwise = out_.scaling.hadamard.rowwise,
                    .hadamard_columnwise = out_.scaling.hadamard.columnwise,
                    .hadamard_signs = out_.scaling.hadamard.signs,
                    .given_inv_scale = options_.given_inv_scale,
                    .tensor_amax = &tensor_amax_};
    // 0 / 0 has a sign that depends on the processor; peers' NaN has none.
    if (is_peer(job.scale.arith)) job.encode.nan_code = NanCode::positive_ones;
    choose_staging(job);
    check_nan();
    find_tensor_scales();
    float shared_amax = 0;
    const bool one_scale = out_.scaling.tile == Tile{0, 0} && job.given_inv_scale == nullptr;
    check(!one_scale || plan_.is_one_matrix() || job.policy == AmaxPolicy::max,
          ErrorCode::unsupported, op_, "policy ", name_of(job.policy),
          " per tensor wants contiguous values");
    // Strips, like matrices, are given the amax of all of them; not that of turned values, which is
    // known to nobody before they are.
    const bool strips = stager_ && !job.hadamard_rowwise && !job.hadamard_columnwise;
    if (one_scale && job.policy == AmaxPolicy::max && (strips || !plan_.is_one_matrix())) {
      shared_amax = whole_amax(amax_of(job.scale));
      job.given_amax = &shared_amax;
    }
    float found = 0;
    Counts counts;
    if (options_.amax != nullptr) job.amax = &found;
    if (options_.counts != nullptr) job.counts = &counts;
    if (plan_.empty) store_empty();
    for_each_plan_matrix(plan_, [&](std::int64_t value_offset, std::int64_t code_offset,
                                    std::int64_t scale_offset, std::uint64_t first) {
      const Producer producer = producer_from(first);
      job.source = source_of(value_offset, producer);
      job.encode.first_index = out_.scaling.encode.first_index + first;
      set_copies(job, code_offset, scale_offset);
      stager_ ? stager_->quantize(exec_, job) : quantize_entry_(exec_, job);
    });
    if (options_.amax != nullptr) *options_.amax = found;
    if (options_.counts != nullptr) *options_.counts = counts;
  }

 private:
  // What is produced is quantized by the backend itself, or from scratch memory.
  void choose_staging(const QuantizeJob& job) {
    if (source_.producer == nullptr) return;
    check(plan_.tile == out_.scaling.tile || out_.shape.rank() < 2 ||
              (source_.producer->mean == nullptr && source_.producer->inv_std == nullptr),
          ErrorCode::unsupported, op_, "the scaling's axis is ", out_.scaling.axis,
          ", and rows are kept statistics of along the last one; take mean and inv_std from a call "
          "that gives plain values");
    QuantizeJob probe = job;
    probe.source = source_of(0, *source_.producer);
    set_copies(probe, 0, 0);
    const Kernels& kernels = quantizing(options_);
    if (kernels.fuses != nullptr && kernels.fuses(probe)) return;
    stager_.emplace(entry_of(options_, &Kernels::produce, op_), quantize_entry_, amax_entry_);
  }

  void set_copies(QuantizeJob& job, std::int64_t code_offset, std::int64_t scale_offset) const {
    if (out_.scaling.rowwise)
      job.rowwise = quantized_matrix(plan_, out_.rowwise, code_offset, scale_offset);
    if (out_.scaling.columnwise)
      job.columnwise = transposed_matrix(out_.columnwise, out_.scaling.tile);
  }

  // Of the matrix that so many elements come before: statistics go where its rows' belong.
  [[nodiscard]] Producer producer_from(std::uint64_t first) const {
    Producer producer = source_.producer != nullptr ? *source_.producer : Producer{};
    const auto rows = static_cast<std::int64_t>(first) / std::max<std::int64_t>(plan_.col.size, 1);
    if (producer.mean != nullptr) producer.mean += rows;
    if (producer.inv_std != nullptr) producer.inv_std += rows;
    return producer;
  }

  [[nodiscard]] QuantizeSource source_of(std::int64_t value_offset,
                                         const Producer& producer) const {
    QuantizeSource source;
    if (source_.quantized == nullptr) {
      const bool is_produced = source_.producer != nullptr;
      const std::int64_t cols = plan_.col.size * (is_produced && producer.gated ? 2 : 1);
      source.values = matrix_of(source_.view, value_offset, plan_.row.size, cols,
                                plan_.row.value_stride, plan_.col.value_stride);
      if (is_produced) source.producer = &producer;
      return source;
    }
    // The source's own tiles: its plan has the same matrices, because both are dense.
    const QuantizedTensor& from = *source_.quantized;
    const MatrixPlan plan = make_plan(from.rowwise.codes.view(), from.rowwise.codes.view(),
                                      from.rowwise.scales.view(), from.scaling);
    source.quantized = quantized_matrix(plan, from.rowwise, 0, 0);
    return source;
  }

  [[nodiscard]] float whole_amax(AmaxOf of) {
    float amax = 0;
    for_each_plan_matrix(
        plan_, [&](std::int64_t value, std::int64_t, std::int64_t, std::uint64_t first) {
          const Producer producer = producer_from(first);
          const QuantizeSource source = source_of(value, producer);
          stager_ ? stager_->amax(exec_, source, of, &amax) : amax_entry_(exec_, source, of, &amax);
        });
    return amax;
  }

  void check_nan() {
    const Scaling& scaling = out_.scaling;
    if (scaling.format.has_nan() || scaling.encode.nan_input != NanInput::error ||
        amax_of(scaling.scale) == AmaxOf::all)
      return;
    if (!std::isnan(whole_amax(AmaxOf::all))) return;
    fail(ErrorCode::invalid_argument, op_, "the input has NaN, and ", format_name(scaling.format),
         " cannot hold NaN; say what NaN becomes (nan: zero or max)",
         is_peer(scaling.scale.arith)
             ? text("; arith ", name_of(scaling.scale.arith), " never poisons a tile with it")
             : ", or let it poison its tile (non_finite: poison)");
  }

  // With what some peers look at besides the amax.
  [[nodiscard]] ScaleSpec spec_of() const {
    ScaleSpec spec = out_.scaling.scale;
    const bool plain = source_.quantized == nullptr && source_.producer == nullptr;
    const DType dtype = plain ? source_.view.dtype : DType::f32;
    spec.context = {.input = dtype == DType::bf16  ? InputType::bf16
                             : dtype == DType::f16 ? InputType::f16
                                                   : InputType::f32,
                    .per_tensor = out_.scaling.tile == Tile{0, 0}};
    return spec;
  }

  void find_tensor_scales() {
    if (out_.scaling.scale.format != ScaleFormat::e4m3_f32) return;
    tensor_amax_ = whole_amax(tensor_amax_of(out_.scaling.scale));
    const float scale = tensor_scale_of(out_.scaling.scale, out_.scaling.format, tensor_amax_);
    if (out_.scaling.rowwise) *scalar_of(out_.rowwise.tensor_scale) = scale;
    if (out_.scaling.columnwise) *scalar_of(out_.columnwise.tensor_scale) = scale;
  }

  // One scale for nothing at all is that of a tile of zeros.
  void store_empty() const {
    if (out_.scaling.tile != Tile{0, 0}) return;
    const std::uint32_t bits =
        options_.given_inv_scale != nullptr
            ? from_inv_scale(out_.scaling.scale.format, *options_.given_inv_scale).bits
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
  decltype(Kernels::quantize) quantize_entry_;
  decltype(Kernels::amax) amax_entry_;
  std::optional<Stager> stager_{};
  MatrixPlan plan_;
  float tensor_amax_ = 0.0F;
};

void run_quantization(const Source& source, QuantizedTensor& out, const QuantizeOptions& options,
                      std::string_view op) {
  const FpEnvGuard guard;  // some scalars are computed on this side of the door
  check(options.given_inv_scale == nullptr || out.scaling.tile == Tile{0, 0},
        ErrorCode::invalid_argument, op, "a given scale is one for the whole tensor; got tile ",
        out.scaling.tile.rows, "x", out.scaling.tile.cols);
  check(out.scaling.hadamard.rowwise || out.scaling.hadamard.columnwise
            ? source.view.dtype != DType::f64 || source.producer != nullptr
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
  QuantizedTensor out = make_quantized(values.shape, DType::f32, scaling);
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

}  // namespace octavo
