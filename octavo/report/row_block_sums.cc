// Sums of a row block in f32 SIMD lanes.
#include <algorithm>
#include <cmath>

#include "octavo/report/row_block_measuring_internal.h"

namespace octavo {
namespace {

// Squares of values below and above these are no trouble in f32: of the largest they are finite
// when 2^24 of them are added, and what is lost of the smallest is below 2^-126 each, which beside
// the square of an amax of 2^-40 is nothing.
constexpr double kLeastAmax = 0x1p-40, kMaxAmax = 0x1p50;

// Below this a scale times a code that is not zero may become it, and the square of a scale too.
constexpr double kTinyScale = 0x1p-56;

}  // namespace

bool RowBlockMeasuring::measure_fast() {
  const DType dtype = job_.values.dtype;
  const double amax = static_cast<double>(options_.amax);
  if (dtype == DType::f64 || job_.rotated || !job_.plan.is_one_matrix() || out_.scales.nan > 0 ||
      job_.decoded.size() > 256 || !(amax == 0 || (amax >= kLeastAmax && amax <= kMaxAmax)))
    return false;
  // An error of more than half a step means saturation. Times a scale that is no power of two both
  // are rounded, of a result as large as 254 half steps (mxint8) by 254 * 2^-24 of one; 2^-12 is
  // far from that and still rare.
  const View& scales = job_.scales.view();
  const bool powers = scales.dtype == DType::code && scales.format == e8m0fnu;
  const double slack = powers && job_.tensor_scale == 1 ? 1 : 1 - 0x1p-12;
  codes_show_zeros_ =
      job_.decoded.size() == 256 && out_.scales.zero == 0 && out_.scales.least >= kTinyScale;
  const Format& format = job_.copy->codes.format();
  const double unit = std::ldexp(1.0, format.bias - 127);
  // Its scale over the unit is one that f32 has.
  if (reads_codes_ && codes_show_zeros_ && out_.scales.most < 1) {
    moved_mantissa_ = format.mantissa_bits;
    unit_ = static_cast<float>(unit);
  }
  most_error_ = static_cast<float>(half_step_ * slack * static_cast<double>(unit_));
  const std::int64_t rows = job_.plan.row.size, cols = job_.plan.col.size;
  const std::int64_t together = std::max<std::int64_t>(1, kSegment / cols);
  for (std::int64_t first = 0; first < rows; first += together) {
    const std::int64_t count = std::min(together, rows - first);
    for (std::int64_t col = 0; col < cols; col += kSegment) {
      const std::int64_t size = std::min(kSegment, cols - col);
      load(first, count, col, size);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = first + i;
        add_segment(row, col, i * size, size);
        if (options_.histogram_every > 0 &&
            (options_.first_row + row) % options_.histogram_every == 0)
          count_values(row, col, i * size, size);
      }
    }
  }
  take_histograms();
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

void RowBlockMeasuring::find_scales(std::int64_t row, std::int64_t col, int run,
                                    std::int64_t count) {
  if (by_code_ && job_.tile_cols == run) {
    const auto* from = static_cast<const std::uint8_t*>(job_.scales.view().data) +
                       row / job_.tile_rows * job_.plan.row.scale_stride +
                       col / run * job_.plan.col.scale_stride;
    for (std::int64_t i = 0; i < count; ++i, from += job_.plan.col.scale_stride)
      run_scales_[i] = narrow_table_[*from] / unit_;
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    run_scales_[i] = static_cast<float>(scale_at(row, col + i * run)) / unit_;
}

// Blocks of 128 where tiles allow; what is left goes through a padded one, scaled beforehand.
void RowBlockMeasuring::add_segment(std::int64_t row, std::int64_t col, std::int64_t at,
                                    std::int64_t count) {
  const std::int64_t tile = job_.tile_cols;
  const int run = tile == 16 || tile == 32 ? static_cast<int>(tile) : kErrorBlock;
  const bool whole_runs = tile == run || tile % kErrorBlock == 0 || tile >= job_.plan.col.size;
  const std::int64_t blocks = whole_runs ? count / kErrorBlock : 0, done = blocks * kErrorBlock;
  if (blocks > 0) {
    find_scales(row, col, run, done / run);
    const RowErrorJob stretch{
        .x = x_ == nullptr ? static_cast<const void*>(bf16_ + at) : x_ + at,
        .is_bf16 = x_ == nullptr,
        .decoded = moved_mantissa_ == 0 ? y_ + at : nullptr,
        .scales = run_scales_,
        .blocks = static_cast<int>(blocks),
        .run = run,
        .most_error = most_error_,
        .mantissa_bits = moved_mantissa_,
        .codes = codes_show_zeros_ ? reinterpret_cast<const std::uint8_t*>(code_address(row, col))
                                   : nullptr,
        .knows_one = options_.known_max_relative >= 1.0F};
    for (std::uint32_t beyond = row_error_entry_({}, stretch, sums_); beyond != 0;
         beyond &= beyond - 1) {
      const std::int64_t first = static_cast<std::int64_t>(__builtin_ctz(beyond)) * kErrorBlock;
      for (std::int64_t i = first; i < first + kErrorBlock; i += run)
        count_saturated(scale_at(row, col + i), at + i, at + i + run);
    }
  }
  if (done < count) add_rest(row, col + done, at + done, count - done);
}

void RowBlockMeasuring::add_rest(std::int64_t row, std::int64_t col, std::int64_t at,
                                 std::int64_t count) {
  constexpr float kOne = 1;
  for (std::int64_t done = 0; done < count; done += kErrorBlock) {
    float x[kErrorBlock] = {}, y[kErrorBlock] = {};
    const std::int64_t size = std::min<std::int64_t>(kErrorBlock, count - done);
    for (std::int64_t i = 0; i < size; ++i) {
      const double scale = scale_at(row, col + done + i);
      x[i] = value(at + done + i);
      y[i] = result(row, col + done + i, at + done + i) * static_cast<float>(scale);
      count_saturated(scale, at + done + i, at + done + i + 1);
    }
    (void)row_error_entry_(
        {}, {.x = x, .decoded = y, .scales = &kOne, .blocks = 1, .most_error = HUGE_VALF}, sums_);
  }
}

// Beyond half a step above the largest value, as measure_error has it.
void RowBlockMeasuring::count_saturated(double scale, std::int64_t first, std::int64_t end) {
  if (!(scale > 0)) return;
  for (std::int64_t i = first; i < end; ++i) {
    const auto x = static_cast<double>(value(i));
    out_.saturated += x > job_.past_max * scale || x < job_.past_lowest * scale ? 1 : 0;
  }
}

// Values, as f32 unless they are bf16, and decoded codes: rows behind each other.
void RowBlockMeasuring::load(std::int64_t row, std::int64_t rows, std::int64_t col,
                             std::int64_t count) {
  const auto matrix = [&](void* data, DType dtype, const Format& format, std::int64_t size) {
    return Matrix{.data = data,
                  .dtype = dtype,
                  .format = format,
                  .rows = rows,
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
  if (moved_mantissa_ > 0) return;  // decoded in the lanes
  const View& codes = job_.copy->codes.view();
  Matrix from = matrix(code_address(row, col), DType::code, codes.format, 1);
  from.packed = codes.packed;
  from.row_pitch = job_.code_row_bytes;
  job_.decode_entry({}, from, matrix(y_, DType::f32, {}, sizeof(float)));
}

std::byte* RowBlockMeasuring::code_address(std::int64_t row, std::int64_t col) const {
  const View& codes = job_.copy->codes.view();
  return static_cast<std::byte*>(codes.data) + row * job_.code_row_bytes +
         (codes.packed ? col * codes.format.bits() / 8 : col);
}

}  // namespace octavo
