// From a source and a scaling to kernel jobs: computes the tensor amaxes that jobs need, then calls
// the kernels on matrices.
#include "octavo/quant/quantization_internal.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/kernel_call_internal.h"
#include "octavo/quant/produced.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/quant/staged_internal.h"
#include "octavo/quant/tensor_search_internal.h"
#include "octavo/scale/hadamard.h"
#include "octavo/scale/tile_scale.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

// The backend whose quantize is called.
const Kernels& quantizing(const Exec& exec, const QuantizeOptions& options, std::string_view op) {
  if (exec.device.kind != DeviceKind::cpu) return device_backend(exec.device, options.backend, op);
  const Kernels& wanted = checked_cpu_backend(options.backend, op);
  return wanted.quantize != nullptr ? wanted : reference_backend();
}

// A spec of which amax_of says this, for a job that wants an amax alone.
ScaleSpec spec_that_counts(AmaxOf of) {
  if (of == AmaxOf::all) return {.non_finite = NonFinite::poison};
  return {.non_finite = NonFinite::saturate,
          .arith = of == AmaxOf::not_nan ? Arith::te : Arith::octavo};
}

// Adds what the arithmetic needs besides the amax and the caller's choices: statistics for some
// peers, and how much of e4m3 the policy leaves above the tensor's amax.
ScaleSpec spec_of(const QuantizationSource& source, const Scaling& scaling) {
  ScaleSpec spec = scaling.scale;
  const bool plain = source.quantized == nullptr && source.producer == nullptr;
  const DType dtype = plain ? source.view.dtype : DType::f32;
  spec.context = {.input = dtype == DType::bf16  ? InputType::bf16
                           : dtype == DType::f16 ? InputType::f16
                                                 : InputType::f32,
                  .per_tensor = scaling.tile == Tile{0, 0},
                  .tensor_top = tensor_top_of(scaling.policy)};
  return spec;
}

// Of the whole tensor, as each copy has it; null where scales have one level.
struct TensorAmaxes {
  const float *rowwise = nullptr, *columnwise = nullptr;
};

class Quantization {
 public:
  Quantization(const QuantizationSource& source, QuantizedTensor& out,
               const QuantizeOptions& options, std::string_view op)
      : source_(source),
        out_(out),
        options_(options),
        op_(op),
        exec_(exec_for(memory_of(source, out), out.shape, options, op)),
        quantize_entry_(offered(exec_, options.backend, &Kernels::quantize, op)),
        amax_entry_(offered(exec_, options.backend, &Kernels::amax, op)),
        scratch_(exec_) {
    // Without a rowwise copy the plan is that of the one there could be.
    plan_ = out.scaling.rowwise ? make_plan(source.view, out.rowwise.codes.view(),
                                            out.rowwise.scales.view(), out.scaling)
                                : make_plan(source.view, out.scaling);
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
    check_column_weights();
    QuantizeJob job = job_of(source_, out_.scaling, options_);
    choose_staging(job);
    check_nan();
    const TensorAmaxes tensor = find_tensor_scales();
    const bool one_scale =
        is_per_tensor() && job.given_inv_scale == nullptr && job.given_amax == nullptr;
    // Row blocks, like matrices of a batch, get the amax of the whole; not that of
    // Hadamard-transformed values, which is unknown before the transform.
    const bool row_blocks = stager_ && !job.hadamard_rowwise && !job.hadamard_columnwise;
    if (one_scale && job.policy == AmaxPolicy::max && (row_blocks || !plan_.is_one_matrix())) {
      job.given_amax = whole_amax(amax_of(job.scale));
    } else if (one_scale && job.policy != AmaxPolicy::max && !plan_.empty &&
               !plan_.is_one_matrix()) {
      search(job);
    }
    if (options_.amax != nullptr && !options_.raise_amax)
      clear_memory(exec_, options_.amax, sizeof(float));
    if (options_.counts != nullptr) clear_memory(exec_, options_.counts, sizeof(Counts));
    if (plan_.empty && is_per_tensor()) store_empty(job);
    for_each_job(job, [&](const QuantizeJob& one) { quantize_copies(one, tensor); });
  }

 private:
  static std::vector<NamedView> memory_of(const QuantizationSource& source,
                                          const QuantizedTensor& out) {
    std::vector<NamedView> views{{&source.view, "the input", source.is_staging}};
    if (source.quantized != nullptr) name_parts(*source.quantized, views);
    name_parts(out, views);
    return views;
  }

  // On a device their values are not read here.
  void check_column_weights() const {
    const std::span<const float> weights = options_.column_weights;
    const std::int64_t cols = out_.shape.rank() == 0 ? 1 : out_.shape[out_.shape.rank() - 1];
    if (out_.scaling.policy != AmaxPolicy::wmse) {
      check(weights.empty(), ErrorCode::invalid_argument, op_, "got column_weights with policy ",
            name_of(out_.scaling.policy), "; they are for policy wmse");
      return;
    }
    check(static_cast<std::int64_t>(weights.size()) == cols, ErrorCode::invalid_argument, op_,
          "got ", weights.size(), " column_weights for policy wmse and ", cols,
          " columns; expected E[x^2] of each, or policy mse");
    if (exec_.device.kind != DeviceKind::cpu) return;
    const auto is_wrong = [](float weight) { return !(weight >= 0.0F) || !is_finite(weight); };
    const auto wrong = std::find_if(weights.begin(), weights.end(), is_wrong);
    check(wrong == weights.end(), ErrorCode::invalid_argument, op_, "column_weights[",
          wrong - weights.begin(), "] is ", wrong == weights.end() ? 0.0F : *wrong,
          "; expected numbers that are finite and not negative");
  }

  [[nodiscard]] bool is_per_tensor() const { return out_.scaling.tile == Tile{0, 0}; }

  // The backend fuses producer and quantize, or results go through staging memory.
  void choose_staging(const QuantizeJob& job) {
    if (source_.producer == nullptr) return;
    check(plan_.tile == out_.scaling.tile || out_.shape.rank() < 2 ||
              (source_.producer->mean == nullptr && source_.producer->inv_std == nullptr),
          ErrorCode::unsupported, op_, "the scaling's axis is ", out_.scaling.axis,
          ", and rows are kept statistics of along the last one; take mean and inv_std from a call "
          "that gives plain values");
    const Kernels& kernels = quantizing(exec_, options_, op_);
    // All matrices or none: they may differ in how their memory is aligned.
    bool fused = kernels.fuses != nullptr;
    QuantizeJob probe = job;
    for_each_plan_matrix(plan_, [&](std::int64_t value_offset, std::int64_t code_offset,
                                    std::int64_t scale_offset, std::uint64_t) {
      probe.source = source_of(value_offset, *source_.producer);
      set_copies(probe, code_offset, scale_offset);
      fused = fused && kernels.fuses(probe);
    });
    if (fused) return;
    stager_.emplace(exec_, offered(exec_, options_.backend, &Kernels::produce, op_),
                    quantize_entry_, amax_entry_);
  }

  void set_copies(QuantizeJob& job, std::int64_t code_offset, std::int64_t scale_offset) const {
    if (out_.scaling.rowwise)
      job.rowwise = quantized_matrix(plan_, out_.rowwise, code_offset, scale_offset);
    if (out_.scaling.columnwise)
      job.columnwise = transposed_matrix(out_.columnwise, out_.scaling.tile);
  }

  // The job of every matrix.
  template <typename Visit>
  void for_each_job(QuantizeJob job, Visit&& visit) {
    for_each_plan_matrix(plan_, [&](std::int64_t value_offset, std::int64_t code_offset,
                                    std::int64_t scale_offset, std::uint64_t first) {
      const Producer producer = producer_from(first);
      job.source = source_of(value_offset, producer);
      job.encode.first_index = out_.scaling.encode.first_index + first;
      set_copies(job, code_offset, scale_offset);
      visit(job);
    });
  }

  // One scale for several matrices by a policy that searches: afterwards it is that of an amax.
  void search(QuantizeJob& job) {
    check(exec_.device.kind == DeviceKind::cpu, ErrorCode::unsupported, op_, "got policy ",
          name_of(job.policy),
          " with one scale for a tensor on a device whose leading dimensions do not follow each "
          "other in memory; expected contiguous values; make it contiguous, or use policy max");
    const float* largest = job.hadamard_rowwise ? transformed_amax(amax_of(job.scale), false)
                                                : whole_amax(amax_of(job.scale));
    const TensorSearch searching{
        .exec = exec_,
        .count_magnitudes = offered(exec_, options_.backend, &Kernels::count_magnitudes, op_),
        .add_fit_squares = offered(exec_, options_.backend, &Kernels::add_fit_squares, op_),
        .for_each_job = [&](const TensorSearch::Visit& visit) {
          for_each_job(job, [&](const QuantizeJob& one) {
            stager_ ? stager_->visit(exec_, one, visit) : visit(one);
          });
        }};
    const FitAmax found = searching.find(job, element_count(out_.shape), *largest);
    float* amax = scratch_.number();
    *amax = found.amax;
    job.scale = found.spec;
    job.given_amax = amax;
    job.policy = AmaxPolicy::max;
    job.column_weights = nullptr;
  }

  // Together, unless their tensors' amaxes are two.
  void quantize_copies(const QuantizeJob& job, const TensorAmaxes& tensor) {
    const auto quantize_one = [&](QuantizeJob part, const float* tensor_amax) {
      part.tensor_amax = tensor_amax;
      stager_ ? stager_->quantize(exec_, part) : quantize_entry_(exec_, part);
    };
    if (!job.rowwise.wanted() || !job.columnwise.wanted() || tensor.rowwise == tensor.columnwise)
      return quantize_one(job, job.rowwise.wanted() ? tensor.rowwise : tensor.columnwise);
    QuantizeJob part = job;
    part.columnwise = {};
    quantize_one(part, tensor.rowwise);
    part.rowwise = {};
    part.columnwise = job.columnwise;
    part.amax = nullptr;
    part.counts = nullptr;
    quantize_one(part, tensor.columnwise);
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

  // Where the work is done.
  [[nodiscard]] const float* whole_amax(AmaxOf of) {
    float* amax = scratch_.number();
    for_each_plan_matrix(
        plan_, [&](std::int64_t value, std::int64_t, std::int64_t, std::uint64_t first) {
          const Producer producer = producer_from(first);
          const QuantizeSource source = source_of(value, producer);
          stager_ ? stager_->amax(exec_, source, of, amax) : amax_entry_(exec_, source, of, amax);
        });
    return amax;
  }

  // Of the values as one copy has them, which is transformed: a job that wants no copy.
  [[nodiscard]] const float* transformed_amax(AmaxOf of, bool columnwise) {
    QuantizeJob job{.scale = spec_that_counts(of),
                    .hadamard_rowwise = !columnwise,
                    .hadamard_columnwise = columnwise,
                    .hadamard_to_bf16 = rotates_to_bf16(out_.scaling.scale.arith),
                    .hadamard_signs = out_.scaling.hadamard.signs,
                    .amax = scratch_.number()};
    for_each_plan_matrix(plan_,
                         [&](std::int64_t value, std::int64_t, std::int64_t, std::uint64_t first) {
                           const Producer producer = producer_from(first);
                           job.source = source_of(value, producer);
                           stager_ ? stager_->quantize(exec_, job) : quantize_entry_(exec_, job);
                         });
    return job.amax;
  }

  void check_nan() {
    const Scaling& scaling = out_.scaling;
    if (scaling.format.has_nan() || scaling.encode.nan_input != NanInput::error ||
        amax_of(scaling.scale) == AmaxOf::all)
      return;
    check_may_wait(
        exec_, op_,
        "the input cannot be checked for NaN, which a format without NaN needs; say what NaN "
        "becomes (nan: zero or max), or let it poison its tile (non_finite: poison)");
    float found = 0;
    copy_and_wait(exec_, &found, whole_amax(AmaxOf::all), sizeof found);
    if (!std::isnan(found)) return;
    fail(ErrorCode::invalid_argument, op_, "the input has NaN, and ", format_name(scaling.format),
         " cannot hold NaN; say what NaN becomes (nan: zero or max)",
         is_peer(scaling.scale.arith) && scaling.scale.format != ScaleFormat::e4m3_f32
             ? text("; arith ", name_of(scaling.scale.arith), " never poisons a tile with it")
             : ", or let it poison its tile (non_finite: poison)");
  }

  // The second level, where there is one. That of a copy which is Hadamard-transformed is made from
  // the transformed values: they may be four times as large, or all but one of sixteen be zero.
  [[nodiscard]] TensorAmaxes find_tensor_scales() {
    const ScaleSpec spec = spec_of(source_, out_.scaling);
    if (spec.format != ScaleFormat::e4m3_f32) return {};
    const auto entry = offered(exec_, options_.backend, &Kernels::tensor_scale, op_);
    const AmaxOf of = tensor_amax_of(spec);
    const float* plain = options_.given_amax;
    const auto make = [&](const QuantizedCopy& copy, bool transformed, bool columnwise) {
      const float* amax = nullptr;
      if (!copy.exists()) return amax;
      if (transformed && options_.given_amax == nullptr) {
        amax = transformed_amax(of, columnwise);
      } else {
        if (plain == nullptr) plain = whole_amax(of);
        amax = plain;
      }
      entry(exec_, spec, out_.scaling.format, amax, scalar_of(copy.tensor_scale));
      return amax;
    };
    const Hadamard& hadamard = out_.scaling.hadamard;
    const float* rowwise = make(out_.rowwise, hadamard.rowwise, false);
    return {rowwise, make(out_.columnwise, hadamard.columnwise, true)};
  }

  // One scale for nothing at all is that of a tile of zeros, so one zero is quantized.
  void store_empty(const QuantizeJob& like) {
    QuantizeJob job{.scale = like.scale, .given_inv_scale = like.given_inv_scale};
    const std::int64_t bytes = sizeof(float);
    job.source.values = {
        .data = scratch_.number(), .rows = 1, .cols = 1, .row_pitch = bytes, .col_stride = bytes};
    for (const QuantizedCopy* copy : {&out_.rowwise, &out_.columnwise}) {
      if (!copy->exists()) continue;
      const View& scales = copy->scales.view();
      job.rowwise = {.codes = {.data = scratch_.number(),
                               .dtype = DType::code,
                               .format = out_.scaling.format,
                               .rows = 1,
                               .cols = 1,
                               .row_pitch = out_.scaling.format.code_bytes(),
                               .col_stride = out_.scaling.format.code_bytes()},
                     .scales = matrix_of(scales, 0, 1, 1, 0, 0)};
      quantize_entry_(exec_, job);
    }
  }

  const QuantizationSource& source_;
  QuantizedTensor& out_;
  const QuantizeOptions& options_;
  std::string_view op_;
  Exec exec_;
  decltype(Kernels::quantize) quantize_entry_;
  decltype(Kernels::amax) amax_entry_;
  Scratch scratch_;
  std::optional<Stager> stager_{};
  MatrixPlan plan_;
};

}  // namespace

QuantizeJob job_of(const QuantizationSource& source, const Scaling& scaling,
                   const QuantizeOptions& options) {
  QuantizeJob job{
      .scale = spec_of(source, scaling),
      .encode = scaling.encode,
      .policy = scaling.policy,
      .percentile = scaling.percentile,
      .column_weights = options.column_weights.empty() ? nullptr : options.column_weights.data(),
      .hadamard_rowwise = scaling.hadamard.rowwise,
      .hadamard_columnwise = scaling.hadamard.columnwise,
      .hadamard_to_bf16 = rotates_to_bf16(scaling.scale.arith),
      .hadamard_signs = scaling.hadamard.signs,
      .given_inv_scale = options.given_inv_scale,
      .amax = options.amax,
      .counts = options.counts};
  // 0 / 0 has a sign that depends on the processor; peers' NaN has none.
  if (is_peer(job.scale.arith)) job.encode.nan_code = NanCode::positive_ones;
  if (scaling.tile == Tile{0, 0}) job.given_amax = options.given_amax;
  return job;
}

void run_quantization(const QuantizationSource& source, QuantizedTensor& out,
                      const QuantizeOptions& options, std::string_view op) {
  const FpEnvGuard guard;  // some scalars are computed above the kernel interface
  Quantization(source, out, options, op).run();
}

}  // namespace octavo
