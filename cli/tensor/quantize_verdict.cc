// Locates the error within a tensor, and makes the verdict line.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/tensor/quantize_report.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo::cli {
namespace {

// Fractions from which on a finding is worth the verdict line.
constexpr double kManySaturated = 0.001, kManyFlushed = 0.02, kConcentrated = 0.5;
// A multiple of the fraction that becomes zero at any scale for values spread evenly over the
// range.
constexpr double kTimesInevitable = 4;
// "Few" parts: at most this fraction of all, with at least this multiple of the error of an even
// distribution.
constexpr double kFew = 0.05, kTimesFair = 4;

std::string percent(double share) { return formatted("{:.3g} %", 100 * share); }

}  // namespace

Parts parts_of(const QuantizeReport& report) {
  const bool tiles = report.metrics.tiles.size() > 1;
  return {.are_tiles = tiles, .sums = tiles ? &report.metrics.tiles : &report.metrics.rows};
}

std::string slice_of(const QuantizeReport& report, const Parts& parts, std::int64_t index) {
  const int rank = report.shape.rank();
  const Shape& grid = parts.are_tiles ? report.tile_grid : report.shape;
  const int dimensions = parts.are_tiles ? grid.rank() : rank - 1;  // one tile of all has no grid
  std::string out;
  for (int i = dimensions - 1; i >= 0; --i) {
    const std::int64_t at = index % grid[i], size = report.shape[i];
    index /= grid[i];
    std::string one = std::to_string(at);
    if (parts.are_tiles && grid[i] != size) {
      const int axis = report.scaling.axis < 0 ? report.scaling.axis + rank : report.scaling.axis;
      const std::int64_t extent =
          tile_extent(i == axis ? report.scaling.tile.cols : report.scaling.tile.rows, size);
      one = text(at * extent, ":", std::min(size, (at + 1) * extent));
    }
    out = text(one, out.empty() ? "" : ", ", out);
  }
  return out.empty() ? "[...]" : text('[', out, ']');
}

std::vector<std::int64_t> worst_parts(const Parts& parts, std::size_t most) {
  std::vector<std::int64_t> order(parts.sums->size());
  std::iota(order.begin(), order.end(), 0);
  const auto error = [&](std::int64_t i) {
    return (*parts.sums)[static_cast<std::size_t>(i)].error2;
  };
  most = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      return error(a) != error(b) ? error(a) > error(b) : a < b;
                    });
  order.resize(most);
  return order;
}

double error_share(const QuantizeReport& report, const ErrorSums& part) {
  const double all = report.metrics.sums.error2;
  return all > 0 ? part.error2 / all : 0.0;
}

double median_relative_l2(const Parts& parts) {
  std::vector<double> errors;
  for (const ErrorSums& part : *parts.sums)
    if (part.count > 0) errors.push_back(part.relative_l2());
  if (errors.empty()) return 0;
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>((errors.size() - 1) / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  return *middle;
}

namespace {

std::string not_finite(const ErrorMetrics& m) {
  const std::int64_t lost = m.result.nan + m.result.inf, given = m.input.nan + m.input.inf;
  const std::string results =
      lost == 1 ? "1 result is not finite" : grouped(lost) + " results are not finite";
  if (given == 0 && m.result.nan == 0)
    return results +
           ", of values near the largest float32 that were rounded up; multiply the array by 0.5 "
           "first, or dequantize to float64; no metric counts them";
  return formatted(
      "{}, {} NaN or Inf in the input{}; no metric counts them", results, grouped(given),
      m.scales.nan > 0 ? formatted(" and {} poisoned by it", grouped(m.scales.nan, "scale")) : "");
}

// The smallest scale there is: docs/numerics/scales.md.
double least_scale(ScaleFormat format) {
  if (format == ScaleFormat::f16) return 0x1p-24;
  if (format == ScaleFormat::e8m0) return 0x1p-127;
  return format == ScaleFormat::e4m3_f32 ? 0x1p-126 * min_positive(e4m3fn) : 0x1p-126;
}

std::int64_t full_tile_size(const QuantizeReport& report) {
  const Shape& shape = report.shape;
  const int rank = shape.rank(), axis = report.scaling.axis + (report.scaling.axis < 0 ? rank : 0);
  const Tile& tile = report.scaling.tile;
  if (tile == Tile{0, 0} || rank == 0) return element_count(shape);
  const bool has_rows = axis == rank - 1 && rank >= 2;
  return tile_extent(tile.cols, shape[axis]) *
         (has_rows ? tile_extent(tile.rows, shape[rank - 2]) : 1);
}

std::string where_the_error_is(const QuantizeReport& report) {
  const Parts parts = parts_of(report);
  const auto size = static_cast<double>(parts.sums->size());
  if (parts.sums->size() == 1)
    return formatted("the error is that of rounding, all of it in one {}", parts.word());
  const std::vector<std::int64_t> worst =
      worst_parts(parts, static_cast<std::size_t>(std::max(1.0, kFew * size)));
  const auto share_of = [&](std::int64_t index) {
    return error_share(report, (*parts.sums)[static_cast<std::size_t>(index)]);
  };
  double share = 0;
  std::size_t needed = 0;
  while (needed < worst.size() && share < kConcentrated) share += share_of(worst[needed++]);
  const std::string first = slice_of(report, parts, worst[0]);
  const auto stands_out = [&](double part, double count) {
    return part * size >= kTimesFair * count;
  };
  if (share >= kConcentrated && stands_out(share, static_cast<double>(needed)))
    return formatted("{} of the squared error is in {} of {}, the worst at {}", percent(share),
                     grouped(static_cast<std::int64_t>(needed)),
                     grouped(static_cast<std::int64_t>(parts.sums->size()), parts.word()), first);
  return formatted(
      "the error is spread {}; the worst {}, {}, has {} of it",
      stands_out(share_of(worst[0]), 1) ? text("over many ", parts.word(), "s") : "evenly",
      parts.word(), first, percent(share_of(worst[0])));
}

}  // namespace

std::string verdict_of(const QuantizeReport& report) {
  const ErrorMetrics& m = report.metrics;
  if (m.elements == 0) return "there is nothing in it";
  if (m.result.nan + m.result.inf > 0) return not_finite(m);
  if (m.sums.error2 == 0) return "exact: every value came back as it was";
  if (m.saturated_share >= kManySaturated)
    return formatted("{} of the values are beyond the range of their tile and became its limit",
                     percent(m.saturated_share));
  const Format& format = report.scaling.format;
  const double inevitable = min_positive(format) / 2 / max_value(format);
  if (m.flushed_share >= std::max(kManyFlushed, kTimesInevitable * inevitable)) {
    const std::string flushed = formatted("{} of the values became zero", percent(m.flushed_share));
    const ScaleSpec& scale = report.scaling.scale;
    const double needs_least =
        std::ldexp(least_scale(scale.format) * max_value(format), -scale.margin);
    if (m.amax < needs_least)
      return formatted(
          "{}: scales of {} are not small enough for values below {}; multiply the array by a "
          "power of two first",
          flushed, name_of(scale.format), short_number(needs_least));
    return flushed +
           " beside larger ones that share their scale; smaller tiles, or a format with more "
           "exponent bits, would keep them";
  }
  return where_the_error_is(report);
}

std::string note_of(const QuantizeReport& report) {
  if (report.scaling.policy != AmaxPolicy::percentile || report.scaling.percentile == 100)
    return "";
  const auto each = static_cast<double>(full_tile_size(report));
  if (each == 0 || std::ceil(report.scaling.percentile / 100 * each) < each) return "";
  const double most = std::floor(1e4 * (each - 1) / each) / 100;
  return formatted(
      "percentile {} of a tile of {} is the largest of its values, as with max; expected at most "
      "{}, "
      "or larger tiles",
      report.scaling.percentile, each, most);
}

bool misses(const QuantizeReport& report, const Gate& gate) {
  return report.metrics.result.nan + report.metrics.result.inf > 0 ||
         gate.is_violated_by(report.metrics);
}

}  // namespace octavo::cli
