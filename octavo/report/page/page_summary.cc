// The top of the page: what came out, in a few numbers, and where the bytes are.
#include <algorithm>
#include <cmath>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/report/median_internal.h"
#include "octavo/report/page/page_internal.h"

namespace octavo::page {
namespace {

struct Totals {
  std::int64_t quantized = 0, measured = 0, values = 0, saturated = 0, flushed = 0;
  std::int64_t not_finite_in = 0, not_finite_out = 0, uncounted = 0;
  double median_sqnr = NAN;
};

Totals totals_of(const CheckpointReport& report) {
  Totals out;
  std::vector<double> sqnrs;
  for (const TensorReport& tensor : report.tensors) {
    out.quantized += !tensor.preset.empty();
    if (!tensor.measured) continue;
    const ErrorMetrics& metrics = tensor.metrics;
    ++out.measured;
    out.values += metrics.elements;
    out.saturated += metrics.saturated;
    out.flushed += metrics.flushed;
    out.not_finite_in += metrics.input.nan + metrics.input.inf;
    out.not_finite_out += metrics.result.nan + metrics.result.inf;
    out.uncounted += uncounted(tensor);
    if (!std::isnan(metrics.sqnr)) sqnrs.push_back(metrics.sqnr);
  }
  out.median_sqnr = median(std::move(sqnrs));
  return out;
}

std::string card(std::string_view big, std::string_view below, bool bad = false) {
  return text("<div class=\"card", bad ? " bad" : "", "\"><b>", big, "</b><span>", below,
              "</span></div>\n");
}

std::string size_card(const CheckpointReport& report) {
  const auto unbroken = [](std::string size) {  // the number and its unit stay on one line
    if (const std::size_t at = size.find(' '); at != std::string::npos)
      size.replace(at, 1, "\u00a0");
    return size;
  };
  const std::string before = unbroken(bytes_text(report.bytes_before)),
                    after = unbroken(bytes_text(report.bytes_after));
  if (report.bytes_before == 0) return card(after, "of tensors");
  const double part =
      static_cast<double>(report.bytes_after) / static_cast<double>(report.bytes_before);
  return card(text(before, " → ", after), text(fixed(100 * part, 1), " % of the size before"));
}

// Where the bytes of the result are: one stripe for each preset, and one for what was copied.
std::string parts_bar(const CheckpointReport& report) {
  struct Part {
    std::string name;
    std::uint64_t bytes = 0;
    std::int64_t tensors = 0;
  };
  std::vector<Part> parts;
  Part rest{.name = "not quantized"};
  for (const TensorReport& tensor : report.tensors) {
    Part* part = &rest;
    if (!tensor.preset.empty()) {
      auto at = std::find_if(parts.begin(), parts.end(),
                             [&](const Part& known) { return known.name == tensor.preset; });
      if (at == parts.end()) at = parts.insert(at, Part{.name = tensor.preset});
      part = &*at;
    }
    part->bytes += tensor.bytes_after;
    ++part->tensors;
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.bytes > b.bytes; });
  if (rest.tensors > 0) parts.push_back(rest);
  double all = 0;
  for (const Part& part : parts) all += static_cast<double>(part.bytes);
  if (all == 0) return "";
  std::string bar, key;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool is_rest = rest.tensors > 0 && i + 1 == parts.size();
    const std::string color = is_rest ? "px" : text("p", std::min<std::size_t>(i, 4));
    const double share = static_cast<double>(parts[i].bytes) / all;
    bar += text("<i class=\"", color, "\" style=\"width:", fixed(100 * share, 2), "%\"></i>");
    key += text("<span><i class=\"", color, "\"></i>", escaped(parts[i].name), ": ",
                bytes_text(parts[i].bytes), ", ", grouped(parts[i].tensors), " ",
                plural(parts[i].tensors, "tensor"), "</span>");
  }
  return text("<section><h2>Where the bytes are</h2><div class=\"parts\" aria-hidden=\"true\">",
              bar, "</div><div class=\"key\">", key, "</div></section>\n");
}

}  // namespace

std::string summary(const CheckpointReport& report) {
  const Totals totals = totals_of(report);
  std::string out = "<div class=\"cards\">\n" + size_card(report);
  if (report.bits_per_weight > 0)
    out += card(fixed(report.bits_per_weight, 2), "bits per quantized weight, scales included");
  out += card(text(grouped(totals.quantized), " of ",
                   grouped(static_cast<std::int64_t>(report.tensors.size()))),
              "tensors quantized");
  if (totals.measured > 0) {
    const TensorReport& worst = report.tensors[report.worst(1)[0]];
    out += card(fixed(totals.median_sqnr, 1) + " dB", "median SQNR");
    out += card(fixed(worst.metrics.sqnr, 1) + " dB",
                text("worst SQNR: <span class=\"mono\" title=\"", escaped(worst.name), "\">",
                     escaped(worst.name), "</span>"));
    double cosine = 1;
    for (const TensorReport& tensor : report.tensors)
      if (tensor.measured) cosine = std::min(cosine, tensor.metrics.cosine);
    out += card(cosine_text(cosine), "lowest cosine");
    const double values = static_cast<double>(std::max<std::int64_t>(totals.values, 1));
    out += card(share_text(static_cast<double>(totals.saturated) / values),
                text("saturated: ", grouped(totals.saturated), " of ", grouped(totals.values)));
    out += card(share_text(static_cast<double>(totals.flushed) / values),
                text("flushed to zero: ", grouped(totals.flushed)));
    out += card(grouped(totals.not_finite_out),
                text("NaN or Inf after, ", grouped(totals.not_finite_in), " before"),
                totals.uncounted > 0);
  }
  if (report.seconds > 0) {
    const double rate = static_cast<double>(report.bytes_before) / report.seconds;
    out += card(fixed(report.seconds, report.seconds < 10 ? 2 : 0) + " s",
                bytes_text(static_cast<std::uint64_t>(rate)) + " a second");
  }
  return out + "</div>\n" + parts_bar(report);
}

}  // namespace octavo::page
