// The page as a whole.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"

namespace octavo {
namespace {

using page::escaped;

std::string head_of(const CheckpointReport& report) {
  std::string what = report.verb == "compare" ? "compared with " : "";
  what += report.verb == "compare" ? text("<code>", escaped(report.output), "</code>")
                                   : escaped(report.recipe);
  if (!report.target.empty()) what += text(" for ", escaped(report.target));
  return text("<header><h1>", escaped(report.title), "</h1><p class=\"soft\">",
              report.verb == "compare" ? "" : "Quantized to ", what, "</p></header>\n");
}

// Advice grouped: one line for each kind, with its count.
std::string advice_list(const CheckpointReport& report) {
  struct Given {
    std::string from, example;
    std::int64_t count = 0;
  };
  std::vector<Given> all;
  for (const TensorReport& tensor : report.tensors) {
    if (tensor.advice.empty()) continue;
    // The part before the numbers: "fp8-block instead of nvfp4".
    const std::string kind = tensor.advice.substr(0, tensor.advice.find(" gains "));
    bool known = false;
    for (Given& given : all)
      if (given.from == kind) known = true, ++given.count;
    if (!known) all.push_back({kind, text(tensor.advice, " (", tensor.name, ")"), 1});
  }
  std::string items;
  for (const Given& given : all)
    items += text("<li>", escaped(given.example),
                  given.count > 1 ? text(", and alike for ", page::grouped(given.count - 1),
                                         given.count == 2 ? " other tensor" : " other tensors")
                                  : "",
                  "</li>\n");
  return items;
}

std::string notes_of(const CheckpointReport& report) {
  std::string notes;
  for (const std::string& note : report.notes) notes += text("<li>", escaped(note), "</li>\n");
  const std::string advice = advice_list(report);
  if (notes.empty() && advice.empty()) return "";
  std::string out = "<section>";
  if (!notes.empty()) out += text("<h2>Good to know</h2><ul>", notes, "</ul>");
  if (!advice.empty())
    out += text("<h2", notes.empty() ? "" : " style=\"margin-top:14px\"",
                ">Advice</h2><p class=\"soft small\">Estimated from how the values of each tensor "
                "are spread; another recipe for such names tries it.</p><ul>",
                advice, "</ul>");
  return out + "</section>\n";
}

std::string provenance_of(const CheckpointReport& report) {
  std::string list;
  const auto line = [&](std::string_view key, std::string_view value) {
    if (!value.empty())
      list += text("<dt>", escaped(key), "</dt><dd class=\"mono\">", escaped(value), "</dd>");
  };
  const auto is_told = [&](std::string_view key) {
    return std::any_of(report.provenance.begin(), report.provenance.end(),
                       [&](const auto& pair) { return pair.first == key; });
  };
  line("source", report.source);
  line("output", report.output);
  if (!is_told("recipe")) line("recipe", report.recipe);
  if (!is_told("target")) line("target", report.target);
  for (const auto& [key, value] : report.provenance) line(key, value);
  return list.empty() ? ""
                      : text("<section><h2>How it was made</h2><dl>", list, "</dl></section>\n");
}

}  // namespace

std::string html_of(const CheckpointReport& report) {
  // The policy forbids every request, whatever a name may have smuggled in.
  return text(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
      "img-src "
      "data:\">\n<link rel=\"icon\" href=\"data:,\">\n<title>",
      escaped(report.title), " - octavo</title>\n<style>", page::style(),
      "</style></head>\n<body><main>\n", head_of(report), page::summary(report), notes_of(report),
      page::heat_maps(report), page::histograms(report), page::tensor_table(report),
      page::plain_table(report), provenance_of(report),
      "<footer>Made by octavo. SQNR: 10 log<sub>10</sub> of the sum of squared values over the sum "
      "of squared errors. Every number is per tensor and counts what is finite.</footer>\n"
      "</main>\n<script>",
      page::script(), "</script></body></html>\n");
}

}  // namespace octavo
