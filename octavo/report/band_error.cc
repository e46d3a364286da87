#include "octavo/report/band_error.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/decode.h"
#include "octavo/report/lane_sums_internal.h"
#include "octavo/report/piece_internal.h"

namespace octavo {
namespace {

// Values of one row at a time, at most this many: two buffers of f32 that stay in the first-level
// cache. A multiple of 8, so that packed codes are cut between bytes.
constexpr std::int64_t kSegment = 4096;

// Squares of values below and above these are no trouble in f32: of the largest they are finite
// when 2^24 of them are added, and what is lost of the smallest is below 2^-126 each, which beside
// the square of an amax of 2^-40 is nothing.
constexpr double kLeastAmax = 0x1p-40, kMostAmax = 0x1p50;

// The largest f32 that is not above a positive f64: x > bound is the same question for both.
float not_above(double bound) {
  const auto nearest = static_cast<float>(bound);
  if (static_cast<double>(nearest) <= bound) return nearest;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, nearest) - 1);
}

class BandMeasuring {
 public:
  BandMeasuring(const View& values, const QuantizedTensor& band, const BandErrorOptions& options)
      : options_(options),
        job_(make_measurement(values, band,
                              {.histograms = options.histogram_every > 0, .threads = 1})) {
    out_.elements = element_count(values.shape);
    out_.nbytes = band.rowwise.nbytes();
    if (options.histogram_every > 0) out_.codes.assign(job_.decoded.size(), 0);
    look_at_scales();
  }

  BandError run() {
    if (out_.elements == 0) return std::move(out_);
    if (!measure_fast()) measure_exactly();
    return std::move(out_);
  }

 private:
  void look_at_scales() {
    const View& view = job_.scales.view();
    by_code_ = view.dtype == DType::code && view.format.code_bytes() == 1;
    if (by_code_)
      for (std::uint32_t code = 0; code < 256; ++code)
        table_[code] =
            code <= view.format.code_mask() ? decode(view.format, code) * job_.tensor_scale : 0.0;
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
    std::array<std::int64_t, 256> counts{};
    for (const std::byte code :
         std::span(static_cast<const std::byte*>(view.data), static_cast<std::size_t>(range.count)))
      ++counts[std::to_integer<std::size_t>(code)];
    for (std::size_t code = 0; code < 256; ++code)
      if (counts[code] > 0) note(table_[code], counts[code]);
  }

  static std::size_t exponent_field(float x) {
    return __builtin_bit_cast(std::uint32_t, x) >> 23 & 0xFF;
  }

  [[nodiscard]] double scale_at(std::int64_t row, std::int64_t col) const {
    const std::int64_t at = row / job_.tile_rows * job_.plan.row.scale_stride +
                            col / job_.tile_cols * job_.plan.col.scale_stride;
    if (by_code_) return table_[static_cast<const std::uint8_t*>(job_.scales.view().data)[at]];
    return job_.scale(at / job_.scale_bytes);
  }

  // False where f32 is not enough.
  bool measure_fast() {
    const DType dtype = job_.values.dtype;
    if (dtype == DType::f64 || job_.turned || !job_.plan.is_one_matrix() || out_.scales.nan > 0 ||
        job_.decoded.size() > 256)
      return false;
    LaneSums sums;
    std::uint32_t most = 0;
    const std::int64_t rows = job_.plan.row.size, cols = job_.plan.col.size;
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool counted = options_.histogram_every > 0 &&
                           (options_.first_row + row) % options_.histogram_every == 0;
      for (std::int64_t col = 0; col < cols; col += kSegment) {
        const std::int64_t count = std::min(kSegment, cols - col);
        load(row, col, count);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x_[i]) & 0x7FFFFFFFU;
          most = bits > most ? bits : most;
        }
        apply_scales(row, col, count);
        add_lane_sums(x_, y_, count, sums);
        if (counted) count_values(row, col, count);
      }
    }
    const auto amax = static_cast<double>(__builtin_bit_cast(float, most));
    if (!(amax == 0 || (amax >= kLeastAmax && amax <= kMostAmax))) {  // NaN and Inf too
      forget();
      return false;
    }
    out_.error2 = sums.error2;
    out_.value2 = sums.value2;
    out_.result2 = sums.result2;
    out_.max_abs = static_cast<double>(sums.max_abs);
    out_.max_relative = static_cast<double>(sums.max_relative);
    out_.flushed = sums.flushed;
    out_.amax = amax;
    out_.count = out_.finite = out_.elements;
    return true;
  }

  void forget() {
    out_.saturated = out_.flushed = out_.zeros = 0;
    out_.values = {};
    std::fill(out_.codes.begin(), out_.codes.end(), 0);
  }

  // Values and decoded codes, both as f32.
  void load(std::int64_t row, std::int64_t col, std::int64_t count) {
    const auto matrix = [count](void* data, DType dtype, const Format& format, std::int64_t size) {
      return Matrix{.data = data,
                    .dtype = dtype,
                    .format = format,
                    .rows = 1,
                    .cols = count,
                    .row_pitch = size * count,
                    .col_stride = size};
    };
    auto* const values = static_cast<std::byte*>(job_.values.data) +
                         row * job_.plan.row.value_stride + col * job_.plan.col.value_stride;
    if (job_.values.dtype == DType::f32) {
      std::memcpy(x_, values, static_cast<std::size_t>(count) * sizeof(float));
    } else if (job_.values.dtype == DType::bf16) {
      const auto* const from = reinterpret_cast<const std::uint16_t*>(values);
      for (std::int64_t i = 0; i < count; ++i)
        x_[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(from[i]) << 16);
    } else {
      job_.decode_entry({}, matrix(values, DType::code, f16_format, 2),
                        matrix(x_, DType::f32, {}, sizeof(float)));
    }
    const View& codes = job_.copy->codes.view();
    Matrix from = matrix(code_address(row, col), DType::code, codes.format, 1);
    from.packed = codes.packed;
    from.row_pitch = job_.code_row_bytes;
    job_.decode_entry({}, from, matrix(y_, DType::f32, {}, sizeof(float)));
  }

  [[nodiscard]] std::byte* code_address(std::int64_t row, std::int64_t col) const {
    const View& codes = job_.copy->codes.view();
    return static_cast<std::byte*>(codes.data) + row * job_.code_row_bytes +
           (codes.packed ? col * codes.format.bits() / 8 : col);
  }

  void apply_scales(std::int64_t row, std::int64_t col, std::int64_t count) {
    std::int64_t saturated = 0;
    for (std::int64_t at = 0; at < count;) {
      const std::int64_t end =
          std::min(count, ((col + at) / job_.tile_cols + 1) * job_.tile_cols - col);
      const double scale = scale_at(row, col + at);
      const auto factor = static_cast<float>(scale);
      const float most = scale > 0 ? not_above(job_.past_max * scale) : HUGE_VALF,
                  least = scale > 0 ? -not_above(-job_.past_lowest * scale) : -HUGE_VALF;
      std::int32_t over = 0;
      for (std::int64_t i = at; i < end; ++i) {
        y_[i] *= factor;
        over += static_cast<int>(x_[i] > most) | static_cast<int>(x_[i] < least);
      }
      saturated += over;
      at = end;
    }
    out_.saturated += saturated;
  }

  void count_values(std::int64_t row, std::int64_t col, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      ++out_.values[exponent_field(x_[i])];
      out_.zeros += x_[i] == 0.0F;
    }
    const View& codes = job_.copy->codes.view();
    const std::byte* const from = code_address(row, col);
    const int bits = codes.format.bits();
    const std::uint32_t mask = codes.format.code_mask();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t bit = codes.packed ? i * bits : i * 8;
      auto word = std::to_integer<std::uint32_t>(from[bit / 8]);
      if (bit % 8 + bits > 8) word |= std::to_integer<std::uint32_t>(from[bit / 8 + 1]) << 8;
      ++out_.codes[word >> bit % 8 & mask];
    }
  }

  // As measure_error does it, whatever the values: in f64 and element by element.
  void measure_exactly() {
    PieceScratch scratch;
    PieceSums total, sums;
    const auto clear = [&](PieceSums& of) {
      of = {};
      of.exponents.assign(job_.histograms ? kExponents : 0, 0);
      of.codes.assign(job_.histograms ? job_.decoded.size() : 0, 0);
    };
    clear(total);
    const MatrixPlan& plan = job_.plan;
    for_each_plan_matrix(
        plan, [&](std::int64_t value, std::int64_t code, std::int64_t scale, std::uint64_t) {
          const std::int64_t most_cols = std::min(plan.col.size, kPieceElements),
                             most_rows = std::max<std::int64_t>(1, kPieceElements / plan.col.size);
          for (std::int64_t row = 0; row < plan.row.size; row += most_rows)
            for (std::int64_t col = 0; col < plan.col.size; col += most_cols) {
              clear(sums);
              measure_piece(job_,
                            {value, code, scale, row, col, std::min(most_rows, plan.row.size - row),
                             std::min(most_cols, plan.col.size - col)},
                            scratch, sums);
              total.add(sums);
            }
        });
    take(total);
  }

  void take(const PieceSums& total) {
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
      out_.values[static_cast<std::size_t>(std::clamp(exponent + 127, 0, 254))] +=
          total.exponents[i];
    }
    out_.values[0] += total.zeros;
  }

  BandErrorOptions options_;
  Measurement job_;
  BandError out_;
  bool by_code_ = false;
  std::array<double, 256> table_{};
  alignas(64) float x_[kSegment];
  alignas(64) float y_[kSegment];
};

ValueHistogram histogram_of(const BandError& total) {
  ValueHistogram out;
  out.zeros = total.zeros;
  ExponentCounts counts = total.values;
  counts[0] -= total.zeros;  // what is left there is subnormal
  const auto filled = [](std::int64_t count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), filled);
  if (first == counts.end()) return out;
  const auto end = std::find_if(counts.rbegin(), counts.rend(), filled).base();
  out.first_exponent = static_cast<int>(first - counts.begin()) - 127;
  out.counts.assign(first, end);
  return out;
}

// 1 - cosine is (e^2 - d^2) / (2 |x| |y|) with d = |x| - |y|: nothing large is subtracted from
// anything large, so that it is known as well as the sums are.
double cosine_of(double error2, double value2, double result2) {
  if (value2 == 0 && result2 == 0) return 1;
  if (value2 == 0 || result2 == 0) return 0;
  const double x = std::sqrt(value2), y = std::sqrt(result2), d = (value2 - result2) / (x + y);
  return std::clamp(1 - (error2 - d * d) / (2 * x * y), -1.0, 1.0);
}

}  // namespace

BandError measure_band(const View& values, const QuantizedTensor& band,
                       const BandErrorOptions& options) {
  const FpEnvGuard guard;
  check(values.shape.rank() == 2 && is_dense(values) && band.rowwise.exists(),
        ErrorCode::invalid_argument, "error", "a band is a dense matrix with a rowwise copy");
  return BandMeasuring(values, band, options).run();
}

void TensorError::add(std::size_t ordinal, const BandError& band) {
  if (ordinal >= sums_.size()) sums_.resize(ordinal + 1);
  sums_[ordinal] = {band.error2, band.value2, band.result2};
  total_.elements += band.elements;
  total_.max_abs = std::max(total_.max_abs, band.max_abs);
  total_.max_relative = std::max(total_.max_relative, band.max_relative);
  total_.amax = std::max(total_.amax, band.amax);
  total_.count += band.count;
  total_.finite += band.finite;
  total_.saturated += band.saturated;
  total_.flushed += band.flushed;
  total_.zeros += band.zeros;
  total_.input.nan += band.input.nan;
  total_.input.inf += band.input.inf;
  total_.result.nan += band.result.nan;
  total_.result.inf += band.result.inf;
  total_.nbytes += band.nbytes;
  ScaleRange& range = total_.scales;
  range.count += band.scales.count;
  range.nan += band.scales.nan;
  range.zero += band.scales.zero;
  if (band.scales.least > 0)
    range.least = range.least == 0 ? band.scales.least : std::min(range.least, band.scales.least);
  range.most = std::max(range.most, band.scales.most);
  for (std::size_t i = 0; i < total_.values.size(); ++i) {
    total_.values[i] += band.values[i];
    total_.scale_counts[i] += band.scale_counts[i];
  }
  if (total_.codes.size() < band.codes.size()) total_.codes.resize(band.codes.size());
  for (std::size_t i = 0; i < band.codes.size(); ++i) total_.codes[i] += band.codes[i];
}

ErrorMetrics TensorError::metrics() const {
  ErrorMetrics out;
  double result2 = 0;
  for (const Sums& sums : sums_) {
    out.sums.error2 += sums.error2;
    out.sums.value2 += sums.value2;
    result2 += sums.result2;
  }
  out.elements = total_.elements;
  out.sums.count = total_.count;
  out.sums.max_abs = total_.max_abs;
  out.mse = out.sums.mse();
  out.relative_l2 = out.sums.relative_l2();
  out.sqnr = out.sums.sqnr();
  out.effective_bits = (out.sqnr - 1.76) / 6.02;  // as measure_error has it
  out.cosine = cosine_of(out.sums.error2, out.sums.value2, result2);
  out.max_abs = total_.max_abs;
  out.max_relative = total_.max_relative;
  out.amax = total_.amax;
  out.saturated = total_.saturated;
  out.flushed = total_.flushed;
  if (total_.finite > 0) {
    out.saturated_share = static_cast<double>(out.saturated) / static_cast<double>(total_.finite);
    out.flushed_share = static_cast<double>(out.flushed) / static_cast<double>(total_.finite);
  }
  out.input = total_.input;
  out.result = total_.result;
  out.scales = total_.scales;
  if (out.elements > 0)
    out.bits_per_value =
        8.0 * static_cast<double>(total_.nbytes) / static_cast<double>(out.elements);
  if (!total_.codes.empty()) {
    out.values = histogram_of(total_);
    out.codes = total_.codes;
  }
  return out;
}

}  // namespace octavo
