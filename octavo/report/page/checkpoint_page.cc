// The page as a whole.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"

namespace octavo {
namespace {

using page::escaped;

// The recipe, or those that a mix took.
std::string recipes_of(const CheckpointReport& report) {
  if (report.mix == nullptr) return escaped(report.recipe);
  std::string names;
  for (std::size_t i = 0; i < report.mix->recipes.size(); ++i)
    if (i < report.mix->chosen.elements.size() && report.mix->chosen.elements[i] > 0)
      names += text(names.empty() ? "" : ", ", escaped(report.mix->recipes[i]));
  return "a mix of " + names;
}

std::string head_of(const CheckpointReport& report) {
  std::string what = report.verb == "compare" ? "compared with " : "";
  what += report.verb == "compare" ? text("<code>", escaped(report.output), "</code>")
                                   : recipes_of(report);
  if (!report.target.empty()) what += text(" for ", escaped(report.target));
  return text("<header><h1>", escaped(report.title), "</h1><p class=\"soft\">",
              report.verb == "compare" ? "" : "Quantized to ", what, "</p></header>\n");
}

std::string advice_list(const CheckpointReport& report) {
  std::string items;
  for (const SharedAdvice& shared : report.advice) {
    const std::string others = shared.tensors > 1
                                   ? text("; the same for ", page::grouped(shared.tensors - 1),
                                          shared.tensors == 2 ? " other tensor" : " other tensors")
                                   : "";
    items += text(
        "<li><code>", escaped(shared.tensor), "</code>",
        shared.far_below ? ", far below normal weights: " : ": ", escaped(shared.advice), others,
        shared.recipe_for.empty() ? std::string(". The table has an option for each of them")
                                  : text("<br>", page::option_text(shared.recipe_for)),
        "</li>\n");
  }
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
                "are spread, and only what the target and the loaders of this recipe can hold. "
                "Paste an option behind <code>octavo quantize</code> to try it; of several "
                "<code>--recipe-for</code> that find a name the first decides.</p><ul>",
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
  return page::document(
      report.title,
      text(head_of(report), page::knowledge(), page::summary(report), notes_of(report),
           report.mix ? page::mix_section(*report.mix) : std::string(), page::heat_maps(report),
           page::histograms(report), page::tensor_table(report), page::plain_table(report),
           provenance_of(report)));
}

}  // namespace octavo
