// Norms and activations, to values or directly to codes: whether a job can be done row by row, and
// its plan. Inputs are read once; only the results are written.
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/produce/row_plan.h"
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

bool fits_vector(const Matrix& row, std::int64_t cols) {
  return row.data == nullptr ||
         (row.dtype != DType::f64 && row.dtype != DType::code && row.cols == cols &&
          row.col_stride == element_bytes(row.dtype) && is_aligned(row.data, 16));
}

// Checks x, producer and output, and fills the plan.
bool row_plan(const Matrix& x, const Producer& producer, const Matrix& out, RowPlan* plan) {
  if (!is_value(x.dtype) || x.dtype == DType::f64 || !has_vectors(x) || !has_vectors(out) ||
      out.cols % kRowValues != 0 || !fits_vector(producer.weight, out.cols) ||
      !fits_vector(producer.bias, out.cols) || out.rows > 0x7FFF0000 ||
      !has_aligned_rows(out, 16) || out.cols > std::int64_t{2} * kRowThreads * kRowValues)
    return false;
  plan->from = static_cast<const unsigned char*>(x.data);
  plan->to = static_cast<unsigned char*>(out.data);
  plan->from_pitch = x.row_pitch;
  plan->to_pitch = out.row_pitch;
  plan->rows = out.rows;
  plan->cols = out.cols;
  plan->gate_vectors = out.cols / 8;  // in vectors of eight
  plan->producer = producer;
  return true;
}

void launch(const Exec& exec, const RowPlan& plan, DType source, RowOutput output) {
  plan.producer.is_norm() ? norm_rows(exec, plan, source, output)
                          : activate_rows(exec, plan, source, output);
}

// The output of a job's codes, if its scaling can be done on a row in registers.
bool output_of(const QuantizeJob& job, RowPlan* plan, RowOutput* output) {
  QuantizeJob usual = job;
  usual.source.producer = nullptr;
  const bool given = job.given_inv_scale != nullptr;
  if (given) usual.scale = {};
  const QuantizedMatrix& to = job.rowwise;
  if (!to.wanted() || job.columnwise.wanted() || !is_usual(usual) ||
      fast_element(to.codes.format) != FastElement::e4m3 || amax_of(job.scale) != AmaxOf::all)
    return false;
#ifdef OCTAVO_CUDA_ONE_CONFIG
  if (job.source.values.dtype != DType::bf16) return false;
#endif
  if (!given && !fast_scale(job.scale, to.codes.format, &plan->scale)) return false;
  const FastKind kind = plan->scale.kind;
  const bool f32_scales = to.scales.dtype == DType::f32;
  if (given) {
    if (!f32_scales || to.scales.rows != 1 || to.scales.cols != 1) return false;
    *output = RowOutput::given;
  } else if (to.tile == Tile{1, 32} && kind == FastKind::e8m0) {
    *output = RowOutput::block32;
  } else if (to.tile == Tile{1, 128} && kind == FastKind::quotient && f32_scales) {
    *output = RowOutput::block128;
  } else if (to.tile.rows == 1 && to.scales.cols == 1 && kind == FastKind::quotient && f32_scales) {
    *output = RowOutput::row;
  } else {
    return false;
  }
  plan->scales = static_cast<unsigned char*>(to.scales.data);
  plan->scale_pitch = to.scales.row_pitch;
  plan->scale_stride = to.scales.col_stride;
  plan->inv_scale = job.given_inv_scale;
  plan->amax = job.amax;
  plan->words_of_scales =
      to.scales.col_stride == 1 && to.scales.cols % 4 == 0 && has_aligned_pitch(to.scales, 4);
  return row_plan(job.source.values, *job.source.producer, to.codes, plan);
}

}  // namespace

bool fuses(const QuantizeJob& job) {
  RowPlan plan{};
  RowOutput output{};
  return job.source.producer != nullptr && output_of(job, &plan, &output);
}

bool quantize_produced(const Exec& exec, const QuantizeJob& job) {
  RowPlan plan{};
  RowOutput output{};
  if (job.source.producer == nullptr || !output_of(job, &plan, &output)) return false;
  launch(exec, plan, job.source.values.dtype, output);
  return true;
}

bool produce_rows(const Exec& exec, const Matrix& x, const Producer& producer, const Matrix& out) {
  RowPlan plan{};
#ifdef OCTAVO_CUDA_ONE_CONFIG
  if (x.dtype != DType::bf16) return false;
#endif
  if (!row_plan(x, producer, out, &plan)) return false;
  if (out.dtype != DType::f32 && out.dtype != DType::bf16 && out.dtype != DType::f16) return false;
  launch(exec, plan, x.dtype,
         out.dtype == DType::f32    ? RowOutput::f32
         : out.dtype == DType::bf16 ? RowOutput::bf16
                                    : RowOutput::f16);
  return true;
}

void produce_matrix(const Exec& exec, const Matrix& x, const Producer& producer,
                    const Matrix& out) {
  if (out.rows == 0 || out.cols == 0) return;
  const Scope scope(exec);
  if (!produce_rows(exec, x, producer, out)) produce_general(exec, x, producer, out);
}

}  // namespace octavo::cuda
