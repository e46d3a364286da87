// The page of octavo attention-report: what the rungs are, which to choose, the plot, and its
// numbers. One file without a request or a script.

#include "cli/attention_report.h"
#include "cli/plot/svg.h"
#include "cli/text/formatted.h"

namespace octavo::cli {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--sheet:#fff;--ink:#1b2027;--faint:#5b6572;--edge:#dfe3e8;--good:#0f7a3d;--bad:#a3123f}
@media(prefers-color-scheme:dark){:root{--bg:#12161b;--sheet:#1a2027;--ink:#e4e9ef;--faint:#98a3b0;--edge:#2c343d;--good:#63c98b;--bad:#ff8a9d}}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
main{max-width:1280px;margin:0 auto;padding:28px 20px 56px}
h1{font-size:1.55rem;margin:0 0 4px}h2{font-size:1.1rem;margin:0 0 8px}h3{font-size:.95rem;margin:16px 0 4px}
section{background:var(--sheet);border:1px solid var(--edge);border-radius:10px;padding:18px 20px;margin-top:18px}
.faint{color:var(--faint);font-size:.88rem}
.scrolls{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:5px 7px;text-align:right;border-bottom:1px solid var(--edge);white-space:nowrap;vertical-align:top}
th{color:var(--faint);font-weight:600;white-space:normal;vertical-align:bottom}
td:first-child,th:first-child{text-align:left}
td:last-child{white-space:normal}
.says{text-align:left;white-space:normal}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}
ul{margin:0;padding-left:20px}li{margin-bottom:4px}
section>svg{display:block;width:100%;height:auto}
)css";

std::string row(std::initializer_list<std::string> cells, std::string_view tag = "td") {
  std::string out = "<tr>";
  for (const std::string& cell : cells) out += formatted("<{0}>{1}</{0}>", tag, cell);
  return out + "</tr>\n";
}

std::string rungs_table(const AttentionFindings& findings) {
  std::string rows;
  for (const AttentionRung rung : rungs_of(findings)) {
    const RungWords& words = words_of(rung);
    rows += formatted(
        "<tr><td class=\"says\"><b>{}</b></td><td class=\"says\">{}</td><td class=\"says\">{}</td>"
        "<td class=\"says\">{}</td><td class=\"says\">{}</td><td>{}</td></tr>\n",
        name_of(rung), words.line, words.q_k, words.v, words.p, words.cost);
  }
  return formatted(
      "<section><h2>The rungs</h2><p class=\"faint\">A rung of the ladder says what Q, K, V and "
      "the weights P (after softmax) are rounded to. Cost counts a product in FP8 as a half, in 16 "
      "bits as one.</p><div class=\"scrolls\"><table><thead><tr><th class=\"says\">rung</th><th "
      "class=\"says\">what it is</th><th class=\"says\">Q, K</th><th class=\"says\">V</th><th "
      "class=\"says\">P</th><th>cost</th></tr></thead><tbody>\n{}</tbody></table></div></"
      "section>\n",
      rows);
}

// A number and its percent sign stay on one line.
std::string unbroken_percents(std::string text) {
  for (std::size_t at; (at = text.find(" %")) != std::string::npos;) text.replace(at, 1, "\u00a0");
  return text;
}

std::string advice_list(const AttentionFindings& findings) {
  std::string items;
  for (const std::string& line : advice_of(findings))
    items += formatted("<li>{}</li>\n", unbroken_percents(escape_xml(line)));
  return formatted(
      "<section><h2>Advice</h2><ul>{}</ul><p class=\"faint\">For inputs like these and this "
      "tolerance: an element passes within {:g} + {:g} |exact|. Give your own Q, K and V "
      "(<code>--q --k --v</code>) to know it of a model.</p></section>\n",
      items, findings.atol, findings.rtol);
}

std::string percent_cell(const AttentionRungError& error, std::int64_t failures) {
  return formatted("<span class=\"{}\">{:.3g} %</span>", failures == 0 ? "good" : "bad",
                   100.0 * share_of(error, failures));
}

std::string numbers(const AttentionFindings& findings) {
  std::string out;
  for (const AttentionCase& inputs : findings.cases) {
    std::string rows;
    for (const AttentionRungError& error : inputs.rungs) {
      const auto step = [](double share) { return formatted("{:.3g} %", 100 * share); };
      const std::string chosen = chosen_rungs(error);
      rows += row(
          {formatted("<b>{}</b>", name_of(error.rung)), percent_cell(error, error.failures),
           percent_cell(error, error.failures_of_own), formatted("{:.2e}", error.max_abs),
           formatted("{:.2e}", error.mean_abs), formatted("{:.2e}", error.relative_l2),
           formatted("{:.6f}", error.cosine), step(error.stages.inputs), step(error.stages.scores),
           step(error.stages.weights), step(error.stages.output),
           chosen.empty() ? std::string() : formatted("{}; {} done again", chosen, error.redone)});
    }
    out += formatted(
        "<h3>{}</h3><div "
        "class=\"scrolls\"><table><thead>{}</thead><tbody>\n{}</tbody></table></div>"
        "\n",
        escape_xml(inputs.name),
        row({"rung", "fail", "fail, own inputs", "max error", "mean error", "relative L2", "cosine",
             "inputs", "scores", "softmax", "output", "rows of auto"},
            "th"),
        rows);
  }
  return formatted(
      "<section><h2>The numbers</h2><p class=\"faint\">Against attention in f64. \"Own inputs\": "
      "against exact attention of the rung's own rounded inputs, so without what rounding them "
      "lost. The last four are relative L2 errors after each step: of the rounded inputs (the "
      "worst of Q, K and V), of Q K^T, after softmax, and of the output.</p>{}</section>\n",
      out);
}

}  // namespace

std::string html_of(const AttentionFindings& findings) {
  return formatted(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><meta "
      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:\"><link rel=\"icon\" href=\"data:,\"><title>Attention on "
      "each rung - octavo</title><style>{}</style></head><body><main>\n<header><h1>Attention on "
      "each rung, against f64</h1><p class=\"faint\">Q {}, K {}; {} compared</p></header>\n{}{}"
      "<section><h2>After each step</h2><p class=\"faint\">Relative L2 error, on a logarithmic "
      "axis; an error below 0.001 % has no bar.</p>{}</section>\n{}</main></body></html>\n",
      kStyle, to_string(findings.q), to_string(findings.k),
      findings.rows == 0 ? std::string("all rows")
                         : formatted("{} rows of each head", findings.rows),
      rungs_table(findings), advice_list(findings), plot_attention(findings), numbers(findings));
}

}  // namespace octavo::cli
