// The page of a SweepResult: error against bits and against time, and a table of all points.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"
#include "octavo/report/page/page_scale_internal.h"
#include "octavo/report/sweep_result.h"

namespace octavo {
namespace {

using page::escaped;
using page::fixed;
using page::Scale;

constexpr double kWidth = 1000, kHeight = 380, kLeft = 54, kRight = 40, kTop = 14, kBottom = 44;
constexpr int kLineStyles = 6;

// The axis whose values label the points of a line: tile, or the last one. All others say which
// line a point is on.
std::string_view labelling_axis(const SweepResult& sweep) {
  for (const SweepAxis& axis : sweep.axes)
    if (axis.option == "tile") return axis.option;
  return sweep.axes.empty() ? std::string_view() : sweep.axes.back().option;
}

struct Line {
  std::string name;
  std::vector<std::size_t> points;
};
std::vector<Line> lines_of(const SweepResult& sweep) {
  const std::string_view labels = labelling_axis(sweep);
  std::map<std::string, std::size_t> places;
  std::vector<Line> out;
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    if (!sweep.points[i].why_not.empty()) continue;
    SweepPoint named;
    for (const auto& one : sweep.points[i].settings)
      if (one.first != labels) named.settings.push_back(one);
    const std::string name = name_of(named);
    const auto [at, is_new] = places.try_emplace(name, out.size());
    if (is_new) out.push_back({.name = name, .points = {}});
    out[at->second].points.push_back(i);
  }
  return out;
}

std::string label_of(const SweepResult& sweep, const SweepPoint& point) {
  for (const auto& [option, value] : point.settings)
    if (option == labelling_axis(sweep)) return value;
  return "";
}

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fixed(seconds, 2) + " s";
  if (seconds >= 1e-3) return fixed(seconds * 1e3, 2) + " ms";
  return fixed(seconds * 1e6, 1) + " µs";
}

struct Chart {
  std::string title, across;
  double (*x)(const SweepPoint&);
  std::string (*tick)(double);
  bool logarithmic;
};

std::string drawn(const SweepResult& sweep, const std::vector<Line>& lines, const Chart& chart) {
  std::vector<double> xs, ys;
  for (const Line& line : lines)
    for (const std::size_t i : line.points) {
      xs.push_back(chart.x(sweep.points[i]));
      ys.push_back(sweep.points[i].sqnr);
    }
  const Scale across(xs, chart.logarithmic), up(ys, false);
  const auto x_of = [&](double value) {
    return kLeft + across.share(value) * (kWidth - kLeft - kRight);
  };
  const auto y_of = [&](double value) {
    return kHeight - kBottom - up.share(value) * (kHeight - kTop - kBottom);
  };
  std::string out;
  for (const double at : up.ticks())
    out += text("<path class=\"rule\" d=\"M", fixed(kLeft, 1), " ", fixed(y_of(at), 1), "H",
                fixed(kWidth - kRight, 1), "\"/><text x=\"", fixed(kLeft - 8, 1), "\" y=\"",
                fixed(y_of(at) + 4, 1), "\" text-anchor=\"end\">", fixed(at, up.step < 1 ? 1 : 0),
                "</text>");
  for (const double at : across.ticks())
    out += text("<path class=\"rule\" d=\"M", fixed(x_of(at), 1), " ", fixed(kTop, 1), "V",
                fixed(kHeight - kBottom, 1), "\"/><text x=\"", fixed(x_of(at), 1), "\" y=\"",
                fixed(kHeight - kBottom + 18, 1), "\" text-anchor=\"middle\">", chart.tick(at),
                "</text>");
  const std::vector<bool> best = best_of(sweep);
  for (std::size_t l = 0; l < lines.size(); ++l) {
    std::string path, marks;
    for (const std::size_t i : lines[l].points) {
      const SweepPoint& point = sweep.points[i];
      if (!std::isfinite(point.sqnr)) continue;
      const double x = x_of(chart.x(point)), y = y_of(point.sqnr);
      path += text(path.empty() ? "M" : "L", fixed(x, 1), " ", fixed(y, 1));
      marks += text("<circle class=\"mark line", l % kLineStyles, "\" cx=\"", fixed(x, 1),
                    "\" cy=\"", fixed(y, 1), "\" r=\"", best[i] ? 6 : 3.5, "\"><title>",
                    escaped(name_of(point)), ": ", fixed(point.sqnr, 2), " dB, ",
                    fixed(point.bits_per_value, 3), " bits, ", seconds_text(point.seconds),
                    "</title></circle><text x=\"", fixed(x, 1), "\" y=\"", fixed(y - 9, 1),
                    "\" text-anchor=\"middle\">", escaped(label_of(sweep, point)), "</text>");
    }
    if (path.find('L') != path.npos)
      out += text("<path class=\"line", l % kLineStyles, "\" d=\"", path, "\"/>");
    out += marks;
  }
  return text("<figure class=\"chart\"><figcaption>", chart.title,
              "</figcaption><svg viewBox=\"0 0 ", kWidth, " ", kHeight,
              "\" role=\"img\" aria-label=\"", chart.title, "\">", out, "<text x=\"",
              fixed((kLeft + kWidth - kRight) / 2, 1), "\" y=\"", fixed(kHeight - 6, 1),
              "\" text-anchor=\"middle\">", chart.across, "</text></svg></figure>\n");
}

std::string table_of(const SweepResult& sweep) {
  std::string heads = page::head_cell("setting", "what was swept", true), rows;
  heads += page::head_cell("bits", "per value, scales included");
  heads += page::head_cell("size", "of codes and scales; of a checkpoint all tensors");
  heads += page::head_cell("SQNR dB", "signal to quantization noise, of all values together");
  heads += page::head_cell("error", "length of the difference over length of the values");
  if (!sweep.target.empty())
    heads += page::head_cell("worst SQNR dB", "of one tensor; more is better");
  heads += page::head_cell("cosine", "of the angle between before and after; the lowest");
  heads += page::head_cell("time", escaped(sweep.timed));
  const std::vector<bool> best = best_of(sweep);
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepPoint& point = sweep.points[i];
    rows +=
        text("<tr><td class=\"n mono\">", escaped(name_of(point)), best[i] ? " ●" : "", "</td>");
    if (!point.why_not.empty()) {
      rows += text("<td class=\"a\" colspan=\"", sweep.target.empty() ? 6 : 7, "\">",
                   escaped(point.why_not), "</td></tr>\n");
      continue;
    }
    rows +=
        text("<td data-l=\"bits\">", fixed(point.bits_per_value, 3),
             "</td><td data-l=\"size\" data-v=\"", point.bytes, "\">",
             page::bytes_text(point.bytes), "</td><td data-l=\"SQNR dB\">", fixed(point.sqnr, 2),
             point.uncounted > 0 ? text(" (", point.uncounted, " values became NaN or Inf)") : "",
             "</td><td data-l=\"error\">", fixed(100 * point.relative_l2, 3), " %</td>");
    if (!sweep.target.empty())
      rows += text("<td data-l=\"worst SQNR dB\">", fixed(point.worst_sqnr, 2), "</td>");
    rows += text("<td data-l=\"cosine\">", page::cosine_text(point.cosine),
                 "</td><td data-l=\"time\" data-v=\"", point.seconds, "\">",
                 seconds_text(point.seconds), "</td></tr>\n");
  }
  return text(
      "<section id=\"table\"><h2>Every setting</h2><p class=\"soft small\">● no other "
      "setting has fewer bits and less error.</p>\n",
      page::sortable_table(heads, rows, "settings"), "</section>\n");
}

}  // namespace

std::string html_of(const SweepResult& sweep) {
  const std::vector<Line> lines = lines_of(sweep);
  std::string keys;
  for (std::size_t i = 0; i < lines.size(); ++i)
    keys += text("<span><i class=\"k", i % kLineStyles, "\"></i>",
                 escaped(lines[i].name.empty() ? labelling_axis(sweep) : lines[i].name), "</span>");
  const auto bits = [](const SweepPoint& point) { return point.bits_per_value; };
  const auto seconds = [](const SweepPoint& point) { return point.seconds; };
  const auto bits_text = [](double value) { return fixed(value, value < 16 ? 1 : 0); };
  const std::string charts =
      lines.empty() ? std::string("<p>No setting is possible.</p>")
                    : drawn(sweep, lines,
                            {"SQNR in decibels, by bits per value",
                             "bits per value, scales included", bits, bits_text, false}) +
                          drawn(sweep, lines,
                                {"SQNR in decibels, by time", escaped(sweep.timed), seconds,
                                 seconds_text, true});
  const auto count = static_cast<std::int64_t>(sweep.points.size());
  return page::document(
      sweep.title,
      text("<header><h1>", escaped(sweep.title), "</h1><p class=\"soft\">", page::grouped(count),
           count == 1 ? " setting" : " settings",
           sweep.target.empty() ? std::string() : " for " + escaped(sweep.target),
           "; nothing was written</p></header>\n", page::knowledge(),
           "<section><h2>Error against bits and time</h2><p class=\"soft small\">Higher is better, "
           "and further left. Large points: no other setting has fewer bits and less error. "
           "Numbers at points: ",
           escaped(labelling_axis(sweep)), ".</p><div class=\"key\">", keys, "</div>\n", charts,
           "</section>\n", table_of(sweep)));
}

}  // namespace octavo
