// Dispatch: chooses the kernel of a quantization.
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {

CopyJob copy_job(const QuantizeJob& job, bool transposed) {
  const QuantizedMatrix& to = transposed ? job.columnwise : job.rowwise;
  const Format& element = to.codes.format;
  const bool given = job.given_inv_scale != nullptr;
  CopyJob copy{
      .source = job.source,
      .transposed = transposed,
      .to = to,
      .tile = {tile_extent(to.tile.rows, to.codes.rows), tile_extent(to.tile.cols, to.codes.cols)},
      .tile_rows = tile_count(to.tile.rows, to.codes.rows),
      .tile_cols = tile_count(to.tile.cols, to.codes.cols),
      .scale = job.scale,
      .encode = job.encode,
      .policy = job.policy,
      .percentile = job.percentile,
      .column_weights = job.column_weights,
      .hadamard = transposed ? job.hadamard_columnwise : job.hadamard_rowwise,
      .hadamard_to_bf16 = job.hadamard_to_bf16,
      .signs = job.hadamard_signs,
      .amax_of = amax_of(job.scale),
      .division = divides(job.scale) && !given,
      .is_f64 = job.source.works_in_f64(),
      .peer_adjust = given ? PeerAdjust::none : peer_adjust_of(job.scale, element),
      .poison_code = element.has_nan() ? nan_input_code(element, job.encode, false) : 0,
      .given_amax = job.given_amax,
      .given_inv_scale = job.given_inv_scale,
      .tensor_amax = job.tensor_amax};
  if (transposed ? !job.rowwise.wanted() : true) copy.counts = job.counts;
  return copy;
}

namespace {

bool is_plain(const QuantizeJob& job) {
  const Matrix& values = job.source.values;
  return !job.source.is_quantized() && job.source.producer == nullptr &&
         job.policy == AmaxPolicy::max && !job.hadamard_rowwise && !job.hadamard_columnwise &&
         job.counts == nullptr && job.given_amax == nullptr &&
         job.encode.rounding == Rounding::nearest_even &&
         job.encode.overflow == Overflow::saturate &&
         (values.dtype == DType::f32 || values.dtype == DType::bf16 || values.dtype == DType::f16);
}

}  // namespace

bool is_usual(const QuantizeJob& job) {
  return is_plain(job) && job.scale.arith == Arith::octavo &&
         job.scale.non_finite == NonFinite::poison && job.encode.nan_code == NanCode::signed_ones;
}
bool is_usual_te(const QuantizeJob& job) {
  const Format& element = (job.rowwise.wanted() ? job.rowwise : job.columnwise).codes.format;
  return is_plain(job) && job.scale.arith == Arith::te && (element == e4m3fn || element == e5m2) &&
         job.encode.nan_code == NanCode::positive_ones;
}

namespace {

// A single scale for a copy that is made in row blocks: its amax must be known before the first.
bool needs_amax_first(const QuantizeJob& job) {
  return (job.source.is_quantized() || job.columnwise.wanted()) &&
         (!job.rowwise.wanted() || has_one_tile(job.rowwise)) &&
         (!job.columnwise.wanted() || has_one_tile(job.columnwise)) &&
         job.policy == AmaxPolicy::max && job.given_amax == nullptr &&
         job.given_inv_scale == nullptr && !job.hadamard_rowwise && !job.hadamard_columnwise;
}

// `job` has only a rowwise copy, and an amax if that is wanted.
bool quantize_rowwise(const Exec& exec, QuantizeJob job) {
  if (quantize_tensor(exec, job)) return true;  // computes the amax on its way
  if (job.amax != nullptr) amax_matrix(exec, job.source, amax_of(job.scale), job.amax);
  job.amax = nullptr;
  if (job.source.is_quantized()) return requantize_rows(exec, job);
  return quantize_1d_blocks(exec, job) || quantize_rows(exec, job) || quantize_squares(exec, job) ||
         quantize_vectorized(exec, job);
}

}  // namespace

void quantize_matrix(const Exec& exec, const QuantizeJob& job) {
  if (job.source.rows() == 0 || job.source.cols() == 0) return;
  const Scope scope(exec);
  if (!job.rowwise.wanted() && !job.columnwise.wanted()) {
    if (job.amax != nullptr) amax_as_copied(exec, job);
    return;
  }
  if (quantize_produced(exec, job)) return;  // if fuses() accepts it
  QuantizeJob rest = job;
  Exec inner = exec;
  const bool transposes = can_transpose(job);
  const bool amax_first = (!transposes || job.source.is_quantized()) && needs_amax_first(job);
  const Scratch found(exec, amax_first ? sizeof(float) : 0);
  if (amax_first) {
    inner = without_workspace(exec);  // the workspace is in use
    found.clear();
    amax_matrix(inner, job.source, amax_of(job.scale), found.as<float>());
    rest.given_amax = found.as<float>();
  }
  if (quantize_mx_columns(inner, rest)) {
    rest.rowwise = rest.columnwise = {};
  } else if (rest.rowwise.wanted()) {
    QuantizeJob rows = rest;
    rows.columnwise = {};
    const bool done = quantize_rowwise(inner, rows);
    rest.amax = nullptr;
    if (done) {
      rest.rowwise = {};
      rest.counts = nullptr;
    }
    if (done && transposes) {
      transpose_quantized(inner, job.rowwise, job.columnwise);
      rest.columnwise = {};
    }
  }
  if (rest.amax != nullptr) amax_matrix(inner, job.source, amax_of(job.scale), rest.amax);
  if (rest.columnwise.wanted()) {
    QuantizeJob columns = rest;
    columns.rowwise = {};
    if (rest.rowwise.wanted()) columns.counts = nullptr;
    if (quantize_mx_columns(inner, columns) || quantize_transposed(inner, columns))
      rest.columnwise = {};
  }
  if (rest.rowwise.wanted() || rest.columnwise.wanted()) quantize_general(inner, rest);
}

void dequantize_matrix(const Exec& exec, const QuantizedMatrix& from, const Matrix& values) {
  if (values.rows == 0 || values.cols == 0) return;
  const Scope scope(exec);
  if (!dequantize_vectorized(exec, from, values)) dequantize_general(exec, from, values);
}

void amax_matrix(const Exec& exec, const QuantizeSource& source, AmaxOf of, float* amax) {
  if (source.rows() == 0 || source.cols() == 0) return;
  const Scope scope(exec);
  if (source.is_quantized() && requantize_amax(exec, source, of, amax)) return;
  if (!amax_vectorized(exec, source, of, amax)) amax_general(exec, source, of, amax);
}

}  // namespace octavo::cuda
