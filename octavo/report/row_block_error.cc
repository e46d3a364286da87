#include "octavo/report/row_block_error.h"

#include <algorithm>
#include <cmath>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/decode.h"
#include "octavo/report/row_block_measuring_internal.h"

namespace octavo {

RowBlockMeasuring::RowBlockMeasuring(const View& values, const QuantizedTensor& row_block,
                                     const RowBlockErrorOptions& options)
    : options_(options),
      job_(make_measurement(values, row_block,
                            {.histograms = options.histogram_every > 0, .threads = 1})) {
  out_.elements = element_count(values.shape);
  out_.nbytes = row_block.rowwise.nbytes();
  if (options.histogram_every > 0) out_.codes.assign(job_.decoded.size(), 0);
  const Kernels& kernels = job_.kernels->row_error != nullptr ? *job_.kernels : reference_backend();
  row_error_entry_ = kernels.row_error;
  reads_codes_ = kernels.row_error_reads_codes != nullptr &&
                 kernels.row_error_reads_codes(job_.copy->codes.format());
  half_step_ = job_.past_max - max_value(job_.copy->codes.format());
  scan_scales();
}

RowBlockError RowBlockMeasuring::run() {
  if (out_.elements == 0) return std::move(out_);
  if (!measure_fast()) measure_exactly();
  return std::move(out_);
}

void RowBlockMeasuring::scan_scales() {
  const View& view = job_.scales.view();
  by_code_ = view.dtype == DType::code && view.format.code_bytes() == 1;
  if (by_code_)
    for (std::uint32_t code = 0; code < 256; ++code) {
      table_[code] =
          code <= view.format.code_mask() ? decode(view.format, code) * job_.tensor_scale : 0.0;
      narrow_table_[code] = static_cast<float>(table_[code]);
    }
  ScaleRange& range = out_.scales;
  range.count = element_count(view.shape);
  const auto note = [&](double scale, std::int64_t times) {
    range.nan += std::isnan(scale) ? times : 0;
    range.zero += scale == 0 ? times : 0;
    out_.scale_counts[exponent_field(static_cast<float>(scale))] += times;
    if (!std::isfinite(scale) || scale <= 0) return;
    range.least = range.least == 0 ? scale : std::min(range.least, scale);
    range.most = std::max(range.most, scale);
  };
  if (!by_code_) {
    for (std::int64_t i = 0; i < range.count; ++i) note(job_.scale(i), 1);
    return;
  }
  // Neighbouring scales are often equal: two tables avoid the store-to-load dependency.
  std::array<std::array<std::int64_t, 256>, 2> counts{};
  const auto* const codes = static_cast<const std::uint8_t*>(view.data);
  for (std::int64_t i = 0; i < range.count; ++i)
    ++counts[static_cast<std::size_t>(i % 2)][codes[i]];
  for (std::size_t code = 0; code < 256; ++code)
    if (const std::int64_t count = counts[0][code] + counts[1][code]; count > 0)
      note(table_[code], count);
}

double RowBlockMeasuring::scale_at(std::int64_t row, std::int64_t col) const {
  const std::int64_t at = row / job_.tile_rows * job_.plan.row.scale_stride +
                          col / job_.tile_cols * job_.plan.col.scale_stride;
  const void* const from = static_cast<const std::byte*>(job_.scales.view().data) + at;
  if (by_code_) return table_[*static_cast<const std::uint8_t*>(from)];
  if (job_.scales.view().dtype == DType::f32)
    return static_cast<double>(*static_cast<const float*>(from));
  if (job_.scales.view().dtype == DType::bf16)
    return static_cast<double>(__builtin_bit_cast(
        float, static_cast<std::uint32_t>(*static_cast<const std::uint16_t*>(from)) << 16));
  return job_.scale(at / job_.scale_bytes);
}

void RowBlockMeasuring::measure_exactly() {
  PieceScratch scratch;
  PieceSums total, sums;
  const auto clear = [&](PieceSums& of) {
    of = {};
    of.exponents.assign(job_.histograms ? kExponents : 0, 0);
    of.codes.assign(job_.histograms ? job_.decoded.size() : 0, 0);
  };
  clear(total);
  const MatrixPlan& plan = job_.plan;
  for_each_piece(plan, [&](const Piece& piece) {
    clear(sums);
    measure_piece(job_, piece, scratch, sums);
    total.add(sums);
  });
  take(total);
  if (job_.histograms && plan.is_one_matrix() && !job_.rotated && job_.decoded.size() <= 256)
    for (std::int64_t row = 0; row < plan.row.size; ++row)
      count_results(row, 0, plan.col.size, false);
  take_results();
}

void RowBlockMeasuring::take(const PieceSums& total) {
  out_.error2 = total.sums.error2;
  out_.value2 = total.sums.value2;
  out_.result2 = total.result2;
  out_.max_abs = total.sums.max_abs;
  out_.max_relative = total.max_relative;
  out_.amax = std::max(total.amax, total.lost_amax);
  out_.count = total.sums.count;
  out_.finite = total.finite;
  out_.saturated = total.saturated;
  out_.flushed = total.flushed;
  out_.zeros = total.zeros;
  out_.input = total.input;
  out_.result = total.result;
  out_.codes = total.codes;
  for (std::size_t i = 0; i < total.exponents.size(); ++i) {
    const int exponent = kLeastExponent + static_cast<int>(i);
    out_.values[static_cast<std::size_t>(std::clamp(exponent + 127, 0, 254))] += total.exponents[i];
  }
  out_.values[0] += total.zeros;
}

RowBlockError measure_row_block(const View& values, const QuantizedTensor& row_block,
                                const RowBlockErrorOptions& options) {
  const FpEnvGuard guard;
  check(values.shape.rank() == 2 && is_dense(values) && row_block.rowwise.exists(),
        ErrorCode::invalid_argument, "error", "a row block is a dense matrix with a rowwise copy");
  return RowBlockMeasuring(values, row_block, options).run();
}

}  // namespace octavo
