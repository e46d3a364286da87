// The worst tensors closely: values before, codes after, and the scales between them.
#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/report/page/page_internal.h"

namespace octavo::page {
namespace {

constexpr std::size_t kWorst = 6, kFewestBars = 14;

struct Bar {
  std::int64_t count = 0;
  std::string label;
};

// How many of a tensor's values its histograms counted. For a large tensor that is a sample of
// rows; the page then shows an estimate for all values, and says so.
struct Sample {
  double times = 1;
  [[nodiscard]] bool is_all() const { return times == 1; }
  [[nodiscard]] std::string text_of(std::int64_t count) const {
    if (is_all()) return grouped(count);
    return text("about ", grouped(std::llround(static_cast<double>(count) * times)));
  }
};

Sample sample_of(const ErrorMetrics& metrics) {
  const std::int64_t counted = counted_values(metrics.values);
  const std::int64_t finite = metrics.elements - metrics.input.nan - metrics.input.inf;
  if (counted == 0 || counted >= finite) return {};
  return {static_cast<double>(finite) / static_cast<double>(counted)};
}

// Heights are square roots: a histogram of weights spans six decades, and its thin ends are what a
// format loses first.
std::string bars(std::string_view color, const std::vector<Bar>& all, std::string_view caption,
                 std::string_view first, std::string_view last, const Sample& sample,
                 std::int64_t most = 1) {
  for (const Bar& bar : all) most = std::max(most, bar.count);
  std::string rects;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].count == 0) continue;
    const double height = std::max(
        1.0, 60 * std::sqrt(static_cast<double>(all[i].count) / static_cast<double>(most)));
    rects += text("<rect class=\"", color, "\" x=\"", i, "\" y=\"", fixed(62 - height, 1),
                  "\" width=\".9\" height=\"", fixed(height, 1), "\"><title>", all[i].label, ": ",
                  sample.text_of(all[i].count), "</title></rect>");
  }
  return text("<figure><figcaption>", caption, "</figcaption><svg viewBox=\"0 0 ",
              std::max<std::size_t>(all.size(), 1),
              " 62\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", caption, "\">",
              rects, "</svg><div class=\"ends\"><span>", first, "</span><span>", last,
              "</span></div></figure>\n");
}

std::string power(std::int64_t exponent) { return text("2<sup>", exponent, "</sup>"); }
std::string plain_power(std::int64_t exponent) { return text("2^", exponent); }

// Before and after in the same steps and to the same height, so that they can be compared.
std::string values_of(const ValueHistogram& before, const ValueHistogram& after,
                      const Sample& sample) {
  if (before.counts.empty()) return "";
  const auto end_of = [](const ValueHistogram& of) {
    return of.first_exponent + static_cast<std::int64_t>(of.counts.size());
  };
  std::int64_t first = before.first_exponent, end = end_of(before), most = 1;
  if (!after.counts.empty()) {
    first = std::min<std::int64_t>(first, after.first_exponent);
    end = std::max(end, end_of(after));
  }
  for (const ValueHistogram* const of : {&before, &after})
    for (const std::int64_t count : of->counts) most = std::max(most, count);
  const auto drawn = [&](std::string_view color, const ValueHistogram& of, std::string caption) {
    if (of.counts.empty()) return std::string();
    std::vector<Bar> all;
    for (std::int64_t exponent = first; exponent < end; ++exponent) {
      const std::int64_t at = exponent - of.first_exponent;
      const bool has = at >= 0 && at < static_cast<std::int64_t>(of.counts.size());
      all.push_back({has ? of.counts[static_cast<std::size_t>(at)] : 0,
                     text("from ", plain_power(exponent), " to ", plain_power(exponent + 1))});
    }
    if (of.zeros > 0) caption += text("; ", sample.text_of(of.zeros), " are zero");
    return bars(color, all, caption, power(first), power(end), sample, most);
  };
  return drawn("b1", before, "Before: how large the values are") +
         drawn("b2", after, "After: how large they came back");
}

// In the order of the values that codes stand for; NaN and Inf, if any, are in the table.
std::string codes_of(const TensorReport& tensor, const Sample& sample) {
  const std::vector<std::int64_t>& codes = tensor.metrics.codes;
  const std::optional<Format> format = format_of(tensor);
  if (codes.empty() || !format || codes.size() != format->code_mask() + std::size_t{1}) return "";
  std::vector<std::pair<double, std::int64_t>> used;
  for (std::size_t code = 0; code < codes.size(); ++code) {
    const double value = decode(*format, static_cast<std::uint32_t>(code));
    if (std::isfinite(value)) used.emplace_back(value, codes[code]);
  }
  std::stable_sort(used.begin(), used.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Bar> all;
  for (const auto& [value, count] : used) all.push_back({count, text("code of ", brief(value))});
  const auto unused =
      std::count_if(used.begin(), used.end(), [](const auto& pair) { return pair.second == 0; });
  return bars("b4", all,
              text("Codes: how often each occurs, by value",
                   unused > 0 ? text("; ", unused, " of ", used.size(), " never",
                                     sample.is_all() ? "" : " in the rows that were counted")
                              : ""),
              brief(used.front().first), brief(used.back().first), sample);
}

std::string scales_of(const std::vector<std::int64_t>& scales, std::string_view caption) {
  std::size_t first = 0, end = scales.size();
  while (first < end && scales[first] == 0) ++first;
  while (end > first && scales[end - 1] == 0) --end;
  if (first == end) return "";
  // Two or three exponents are common; bars as wide as the card would say nothing.
  while (end - first < kFewestBars && (first > 0 || end < scales.size())) {
    if (first > 0) --first;
    if (end < scales.size()) ++end;
  }
  std::vector<Bar> all;
  for (std::size_t i = first; i < end; ++i)
    all.push_back({scales[i], plain_power(static_cast<std::int64_t>(i) - 127)});
  return bars("b3", all, caption, power(static_cast<std::int64_t>(first) - 127),
              power(static_cast<std::int64_t>(end) - 127), {});
}

std::string hist_of(const TensorReport& tensor) {
  const ErrorMetrics& metrics = tensor.metrics;
  const Sample sample = sample_of(metrics);
  return text("<div class=\"hist\"><h3 class=\"mono\" title=\"", escaped(tensor.name), "\">",
              escaped(tensor.name), "</h3><p class=\"soft small\">", fixed(metrics.sqnr, 2),
              " dB, ", escaped(tensor.preset), ", largest value ", brief(metrics.amax), "</p>\n",
              values_of(metrics.values, tensor.results, sample), codes_of(tensor, sample),
              scales_of(tensor.scale_histogram, "Scales: how large they are"), "</div>\n");
}

}  // namespace

std::string histograms(const CheckpointReport& report) {
  std::string worst;
  for (const std::size_t i : report.worst(kWorst)) worst += hist_of(report.tensors[i]);
  if (worst.empty()) return "";
  std::vector<std::int64_t> scales;
  for (const TensorReport& tensor : report.tensors) {
    scales.resize(std::max(scales.size(), tensor.scale_histogram.size()));
    for (std::size_t i = 0; i < tensor.scale_histogram.size(); ++i)
      scales[i] += tensor.scale_histogram[i];
  }
  std::string every = scales_of(scales, "All scales of the model, by size");
  if (!every.empty())
    every = text("<div class=\"hist\"><h3>The whole model</h3>\n", every, "</div>\n");
  return text(
      "<section><h2>The worst tensors, before and after</h2><p class=\"soft small\">Heights are "
      "square roots of counts; the count itself appears under the pointer. Before and after have "
      "the "
      "same steps and the same height. Of a tensor of more than a million values some rows are "
      "counted, and numbers that follow from them for all say \"about\".</p>\n<div "
      "class=\"hists\">",
      worst, every, "</div></section>\n");
}

}  // namespace octavo::page
