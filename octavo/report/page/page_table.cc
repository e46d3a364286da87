// Every tensor in a row: those that were measured with their numbers, the others with the reason.
#include <cmath>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"

namespace octavo::page {
namespace {

std::string count_cell(std::string_view label, std::int64_t count, double share, bool bad) {
  return text("<td data-l=\"", label, "\" data-v=\"", brief(share), "\"",
              count > 0 && bad ? " class=\"w\"" : "", " title=\"", grouped(count), "\">",
              share_text(share), "</td>");
}

std::string row_of(const TensorReport& tensor, const Grading& grading) {
  const ErrorMetrics& m = tensor.metrics;
  const std::int64_t not_finite = uncounted(tensor);
  const double elements = static_cast<double>(m.elements > 0 ? m.elements : 1);
  std::string out =
      text("<tr><td class=\"n mono\">", breakable(tensor.name), "</td><td data-l=\"shape\">",
           shape_text(tensor.shape), "</td><td class=\"l\" data-l=\"format\" title=\"",
           escaped(tensor.scaling), "\">", escaped(tensor.preset), "</td>");
  const double above = grading.above(tensor);
  out += text(
      "<td data-l=\"bits\">", fixed(m.bits_per_value, 2), "</td><td data-l=\"SQNR dB\" data-v=\"",
      fixed(m.sqnr, 4), "\"><i class=\"dot g", grade_of(above), "\"></i>", fixed(m.sqnr, 2),
      "</td><td data-l=\"beside normal\" data-v=\"", fixed(above, 4), "\">", signed_text(above),
      "</td><td data-l=\"cosine\" data-v=\"", fixed(m.cosine, 15), "\">", cosine_text(m.cosine),
      "</td><td data-l=\"error\" data-v=\"", brief(m.relative_l2), "\">",
      fixed(100 * m.relative_l2, 2), " %</td><td data-l=\"max error\">", brief(m.max_abs), "</td>");
  out += count_cell("saturated", m.saturated, m.saturated_share, false);
  out += count_cell("flushed", m.flushed, m.flushed_share, false);
  out += count_cell("NaN, Inf", not_finite, static_cast<double>(not_finite) / elements, true);
  std::string advice = escaped(tensor.advice);
  if (!tensor.recipe_for.empty())
    advice = text("<details><summary>", advice, "</summary>", option_text(tensor.recipe_for),
                  "</details>");
  if (!tensor.why.empty())
    advice += text(advice.empty() || !tensor.recipe_for.empty() ? "" : "; ", escaped(tensor.why));
  return out + text("<td data-l=\"size\" data-v=\"", tensor.bytes_after,
                    "\" title=\"before: ", bytes_text(tensor.bytes_before), "\">",
                    bytes_text(tensor.bytes_after), "</td><td class=\"a\">", advice,
                    "</td></tr>\n");
}

}  // namespace

std::string breakable(std::string_view name) {
  std::string out;
  for (const char c : escaped(name)) {
    out += c;
    if (c == '.') out += "<wbr>";
  }
  return out;
}

std::string head_cell(std::string_view name, std::string_view title, bool left) {
  return text("<th scope=\"col\"", left ? " class=\"l\"" : "", " title=\"", title, "\">", name,
              "</th>");
}

std::string sortable_table(std::string_view heads, std::string_view rows, std::string_view of) {
  return text("<div class=\"tools\" hidden><input id=\"", of,
              "-search\" type=\"search\" placeholder=\"Search the ", of,
              "\" aria-label=\"Search the ", of,
              "\"><select aria-label=\"Order\"><option value=\"\">order of names</option></select>"
              "<span class=\"soft small\" aria-live=\"polite\"></span></div>\n"
              "<div class=\"wrap\"><table id=\"",
              of, "\" class=\"cardrows sortable\"><thead><tr>", heads, "</tr></thead><tbody>\n",
              rows, "</tbody></table></div>");
}

std::string tensor_table(const CheckpointReport& report) {
  const Grading grading(report);
  std::string rows;
  for (const TensorReport& tensor : report.tensors)
    if (tensor.measured) rows += row_of(tensor, grading);
  if (rows.empty()) return "";
  std::string heads;
  const auto head = [&](std::string_view name, std::string_view title, bool left = false) {
    heads += head_cell(name, title, left);
  };
  head("tensor", "its name in the checkpoint", true);
  head("shape", "rows × columns");
  head("format", "the preset; the whole scaling is under the pointer", true);
  head("bits", "per value, scales included");
  head("SQNR dB", "signal to quantization noise; more is better");
  head("beside normal", "decibels above or below what normal weights have in this format");
  head("cosine", "of the angle between before and after; 1 is best");
  head("error", "length of the difference over length of the values");
  head("max error", "the largest difference");
  head("saturated", "values beyond what a scale can reach");
  head("flushed", "values that became zero");
  head("NaN, Inf", "values that are not finite after");
  head("size", "after, scales included; before is under the pointer");
  head("advice", "what would come out better, from this tensor's values", true);
  return text("<section id=\"table\"><h2>Every quantized tensor</h2>\n",
              sortable_table(heads, rows, "tensors"), "</section>\n");
}

std::string plain_table(const CheckpointReport& report) {
  std::string rows;
  std::int64_t count = 0;
  for (const TensorReport& tensor : report.tensors) {
    if (tensor.measured) continue;
    ++count;
    rows += text("<tr><td class=\"n mono\">", breakable(tensor.name), "</td><td data-l=\"shape\">",
                 shape_text(tensor.shape), "</td><td class=\"l\" data-l=\"type\">",
                 escaped(tensor.preset.empty() ? tensor.source : tensor.preset),
                 "</td><td data-l=\"size\">", bytes_text(tensor.bytes_after),
                 "</td><td class=\"a\">", escaped(tensor.why), "</td></tr>\n");
  }
  if (count == 0) return "";
  return text("<section><details><summary>", grouped(count), " ", plural(count, "tensor"),
              " without an error measured: left as they were, and why</summary>\n<div "
              "class=\"wrap\" style=\"margin-top:10px\"><table class=\"cardrows\"><thead><tr>"
              "<th scope=\"col\" class=\"l\">tensor</th><th scope=\"col\">shape</th><th "
              "scope=\"col\" class=\"l\">type</th><th scope=\"col\">size</th><th scope=\"col\" "
              "class=\"l\">why</th></tr></thead><tbody>\n",
              rows, "</tbody></table></div></details></section>\n");
}

}  // namespace octavo::page
