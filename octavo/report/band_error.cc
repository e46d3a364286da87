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

// Times this even codes that are not zero may become it.
constexpr double kTinyScale = 0x1p-100;

class BandMeasuring {
 public:
  BandMeasuring(const View& values, const QuantizedTensor& band, const BandErrorOptions& options)
      : options_(options),
        job_(make_measurement(values, band,
                              {.histograms = options.histogram_every > 0, .threads = 1})) {
    out_.elements = element_count(values.shape);
    out_.nbytes = band.rowwise.nbytes();
    if (options.histogram_every > 0) out_.codes.assign(job_.decoded.size(), 0);
    half_step_ = job_.past_max - max_value(job_.copy->codes.format());
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
    const void* const from = static_cast<const std::byte*>(job_.scales.view().data) + at;
    if (by_code_) return table_[*static_cast<const std::uint8_t*>(from)];
    if (job_.scales.view().dtype == DType::f32)
      return static_cast<double>(*static_cast<const float*>(from));
    if (job_.scales.view().dtype == DType::bf16)
      return static_cast<double>(__builtin_bit_cast(
          float, static_cast<std::uint32_t>(*static_cast<const std::uint16_t*>(from)) << 16));
    return job_.scale(at / job_.scale_bytes);
  }

  // False where f32 is not enough.
  bool measure_fast() {
    const DType dtype = job_.values.dtype;
    const double amax = static_cast<double>(options_.amax);
    if (dtype == DType::f64 || job_.turned || !job_.plan.is_one_matrix() || out_.scales.nan > 0 ||
        job_.decoded.size() > 256 || !(amax == 0 || (amax >= kLeastAmax && amax <= kMostAmax)))
      return false;
    const std::int64_t rows = job_.plan.row.size, cols = job_.plan.col.size;
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool counted = options_.histogram_every > 0 &&
                           (options_.first_row + row) % options_.histogram_every == 0;
      for (std::int64_t col = 0; col < cols; col += kSegment) {
        const std::int64_t count = std::min(kSegment, cols - col);
        load(row, col, count);
        add_segment(row, col, count);
        if (counted) count_values(row, col, count);
      }
    }
    out_.error2 = sums_.error2;
    out_.value2 = sums_.value2;
    out_.result2 = sums_.result2;
    out_.max_abs = static_cast<double>(sums_.max_abs);
    out_.max_relative = static_cast<double>(sums_.max_relative);
    out_.flushed = sums_.flushed;
    out_.amax = amax;
    out_.count = out_.finite = out_.elements;
    return true;
  }

  // Blocks of 128 where tiles allow; what is left goes through a padded one, scaled beforehand.
  void add_segment(std::int64_t row, std::int64_t col, std::int64_t count) {
    const std::int64_t tile = job_.tile_cols;
    const int run = tile == 16 || tile == 32 ? static_cast<int>(tile) : kLaneBlock;
    const bool whole_runs = tile == run || tile % kLaneBlock == 0 || tile >= job_.plan.col.size;
    float scales[kLaneBlock / 16], half_steps[kLaneBlock / 16];
    LaneBlock block{.scales = scales,
                    .half_steps = half_steps,
                    .source = x_ == nullptr ? LaneSource::bf16 : LaneSource::f32,
                    .run = run,
                    .knows_one = options_.known_max_relative >= 1.0F};
    const bool bytes = job_.decoded.size() == 256;
    std::int64_t at = 0;
    for (; whole_runs && at + kLaneBlock <= count; at += kLaneBlock) {
      bool tiny = false;
      for (int i = 0; i < kLaneBlock / run; ++i) {
        const double scale = scale_at(row, col + at + i * run);
        tiny = tiny || scale < kTinyScale;
        scales[i] = static_cast<float>(scale);
        half_steps[i] = static_cast<float>(half_step_ * scale);
      }
      block.x = x_ == nullptr ? static_cast<const void*>(bf16_ + at) : x_ + at;
      block.decoded = y_ + at;
      block.codes = bytes && !tiny
                        ? reinterpret_cast<const std::uint8_t*>(code_address(row, col + at))
                        : nullptr;
      for (std::uint32_t beyond = add_lanes(block, sums_); beyond != 0; beyond &= beyond - 1) {
        const std::int64_t first = at + static_cast<std::int64_t>(__builtin_ctz(beyond)) * run;
        count_saturated(scale_at(row, col + first), first, first + run);
      }
    }
    add_rest(row, col, at, count);
  }

  void add_rest(std::int64_t row, std::int64_t col, std::int64_t at, std::int64_t count) {
    constexpr float kOne = 1, kNever = HUGE_VALF;
    while (at < count) {
      float x[kLaneBlock] = {}, y[kLaneBlock] = {};
      const std::int64_t size = std::min<std::int64_t>(kLaneBlock, count - at);
      for (std::int64_t i = 0; i < size; ++i) {
        const double scale = scale_at(row, col + at + i);
        x[i] = value(at + i);
        y[i] = y_[at + i] * static_cast<float>(scale);
        count_saturated(scale, at + i, at + i + 1);
      }
      (void)add_lanes({.x = x, .decoded = y, .scales = &kOne, .half_steps = &kNever}, sums_);
      at += size;
    }
  }

  [[nodiscard]] float value(std::int64_t i) const {
    return x_ != nullptr ? x_[i]
                         : __builtin_bit_cast(float, static_cast<std::uint32_t>(bf16_[i]) << 16);
  }

  // Beyond half a step above the largest value, as measure_error has it.
  void count_saturated(double scale, std::int64_t first, std::int64_t end) {
    if (!(scale > 0)) return;
    for (std::int64_t i = first; i < end; ++i) {
      const auto x = static_cast<double>(value(i));
      out_.saturated += x > job_.past_max * scale || x < job_.past_lowest * scale ? 1 : 0;
    }
  }

  // Values, as f32 unless they are bf16, and decoded codes.
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
    x_ = nullptr;
    if (job_.values.dtype == DType::f32) x_ = reinterpret_cast<const float*>(values);
    if (job_.values.dtype == DType::bf16) bf16_ = reinterpret_cast<const std::uint16_t*>(values);
    if (job_.values.dtype == DType::f16) {
      job_.decode_entry({}, matrix(values, DType::code, f16_format, 2),
                        matrix(wide_, DType::f32, {}, sizeof(float)));
      x_ = wide_;
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

  void count_values(std::int64_t row, std::int64_t col, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float x = value(i);
      ++out_.values[exponent_field(x)];
      out_.zeros += x == 0.0F;
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
  double half_step_ = 0;
  LaneSums sums_;
  // Values of the segment: one of these.
  const float* x_ = nullptr;
  const std::uint16_t* bf16_ = nullptr;
  alignas(64) float wide_[kSegment];
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
