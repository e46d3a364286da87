// Which parts of a tensor the error is in, and the line that says so.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/number_text.h"
#include "cli/quantize_report.h"
#include "octavo/base/error.h"
#include "octavo/format/decode.h"

namespace octavo::cli {
namespace {

// Shares from which on something is worth the one line there is.
constexpr double kManySaturated = 0.001, kManyFlushed = 0.02, kConcentrated = 0.5;
// Of values spread evenly over the range so many become zero whatever the scale; this many times it
// is more than that.
constexpr double kTimesInevitable = 4;
// "Few" parts are at most this share of all.
constexpr double kFew = 0.05;

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::string count_of(std::int64_t count, std::string_view word) {
  return fmt::format("{} {}{}", grouped(count), word, count == 1 ? "" : "s");
}

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

std::string verdict_of(const QuantizeReport& report) {
  const ErrorMetrics& m = report.metrics;
  const Parts parts = parts_of(report);
  if (m.elements == 0) return "there is nothing in it";
  const std::int64_t lost = m.result.nan + m.result.inf;
  if (lost > 0)
    return fmt::format("{} not finite, {} NaN or Inf in the input{}; no metric counts them",
                       lost == 1 ? "1 result is" : grouped(lost) + " results are",
                       grouped(m.input.nan + m.input.inf),
                       m.scales.nan > 0
                           ? fmt::format(" and {} poisoned by it", count_of(m.scales.nan, "scale"))
                           : "");
  if (m.sums.error2 == 0) return "exact: every value came back as it was";
  if (m.saturated_share >= kManySaturated)
    return fmt::format("{} of the values are beyond the range of their tile and became its limit",
                       percent(m.saturated_share));
  const Format& format = report.scaling.format;
  const double inevitable = min_positive(format) / 2 / max_value(format);
  if (m.flushed_share >= std::max(kManyFlushed, kTimesInevitable * inevitable))
    return fmt::format(
        "{} of the values became zero beside larger ones that share their scale; smaller tiles, or "
        "a format of more exponent bits, would keep them",
        percent(m.flushed_share));
  const auto few =
      static_cast<std::size_t>(std::max(1.0, kFew * static_cast<double>(parts.sums->size())));
  const std::vector<std::int64_t> worst = worst_parts(parts, few);
  double share = 0;
  std::size_t needed = 0;
  while (needed < worst.size() && share < kConcentrated)
    share += error_share(report, (*parts.sums)[static_cast<std::size_t>(worst[needed++])]);
  const std::string first = slice_of(report, parts, worst[0]);
  if (parts.sums->size() > 1 && share >= kConcentrated)
    return fmt::format("{} of the squared error {} in {} of {}, the worst at {}", percent(share),
                       "is", grouped(static_cast<std::int64_t>(needed)),
                       count_of(static_cast<std::int64_t>(parts.sums->size()), parts.word()),
                       first);
  if (parts.sums->size() == 1) return "the error is that of rounding; there is one part only";
  return fmt::format(
      "the error is spread evenly; the worst {}, {}, has {} of it", parts.word(), first,
      percent(error_share(report, (*parts.sums)[static_cast<std::size_t>(worst[0])])));
}

bool misses(const QuantizeReport& report, const Gate& gate) {
  return report.metrics.result.nan + report.metrics.result.inf > 0 || gate.holds(report.metrics);
}

}  // namespace octavo::cli
