// The findings of octavo attention-report as a table and as JSON.

#include <array>

#include "cli/attention_report.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"

namespace octavo::cli {
namespace {

std::string percent(double share) { return formatted("{:.3g}%", 100.0 * share); }

}  // namespace

std::string table_of(const AttentionFindings& findings) {
  const Style style(stdout);
  std::string out = formatted("Q {}, K {}; ", to_string(findings.q), to_string(findings.k));
  out += findings.rows == 0 ? "all rows" : grouped(findings.rows, "row") + " of each head";
  out += formatted(", against f64; an element fails outside {} + {} |exact|\n", findings.atol,
                   findings.rtol);
  out +=
      "own: against exact attention of the rung's own inputs; then relative error after each "
      "step\n\n";
  for (const AttentionRung rung : rungs_of(findings))
    out += style.dim(formatted("  {}: {}", name_of(rung), words_of(rung).line)) + "\n";
  for (const AttentionCase& inputs : findings.cases) {
    out += formatted("\n{}\n", style.bold(inputs.name));
    out +=
        style.dim(formatted("  {:<9} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}   {:>8} {:>8} {:>8} {:>8}",
                            "rung", "fail", "own", "max", "mean", "rel. L2", "cosine", "inputs",
                            "scores", "softmax", "output")) +
        "\n";
    for (const AttentionRungError& error : inputs.rungs) {
      const auto shown_share = [&](std::int64_t failures) {
        const std::string share = formatted("{:>8}", percent(share_of(error, failures)));
        return failures == 0 ? style.good(share) : style.bad(share);
      };
      out += formatted(
          "  {:<9} {} {} {:>9.2e} {:>9.2e} {:>9.2e} {:>9.6f}   {:>8} {:>8} {:>8} {:>8}\n",
          name_of(error.rung), shown_share(error.failures), shown_share(error.failures_of_own),
          error.max_abs, error.mean_abs, error.relative_l2, error.cosine,
          percent(error.stages.inputs), percent(error.stages.scores), percent(error.stages.weights),
          percent(error.stages.output));
      if (!error.rows_by_rung.empty())
        out += style.dim(formatted("            rows: {}; {} done again", chosen_rungs(error),
                                   error.redone)) +
               "\n";
    }
  }
  out += "\n";
  for (const std::string& line : advice_of(findings)) out += formatted("  advice, {}\n", line);
  return out;
}

nlohmann::ordered_json json_of(const AttentionFindings& findings) {
  nlohmann::ordered_json json{
      {"q_shape", std::vector<std::int64_t>(findings.q.sizes().begin(), findings.q.sizes().end())},
      {"k_shape", std::vector<std::int64_t>(findings.k.sizes().begin(), findings.k.sizes().end())},
      {"rows_per_head", findings.rows},
      {"rtol", findings.rtol},
      {"atol", findings.atol}};
  json["cases"] = nlohmann::ordered_json::array();
  for (const AttentionCase& inputs : findings.cases) {
    nlohmann::ordered_json rungs = nlohmann::ordered_json::array();
    for (const AttentionRungError& error : inputs.rungs) {
      nlohmann::ordered_json entry{{"rung", name_of(error.rung)},
                                   {"elements", error.elements},
                                   {"failures", error.failures},
                                   {"failures_of_own_inputs", error.failures_of_own},
                                   {"max_abs", error.max_abs},
                                   {"mean_abs", error.mean_abs},
                                   {"relative_l2", error.relative_l2},
                                   {"cosine", error.cosine},
                                   {"stages",
                                    {{"inputs", error.stages.inputs},
                                     {"scores", error.stages.scores},
                                     {"softmax", error.stages.weights},
                                     {"output", error.stages.output}}}};
      if (!error.rows_by_rung.empty()) {
        nlohmann::ordered_json rows = nlohmann::ordered_json::object();
        for (std::size_t i = 0; i < error.rows_by_rung.size(); ++i)
          if (error.rows_by_rung[i] > 0)
            rows[std::string(name_of(static_cast<AttentionRung>(i)))] = error.rows_by_rung[i];
        entry["rows_by_rung"] = rows;
        entry["rows_done_again"] = error.redone;
      }
      rungs.push_back(entry);
    }
    json["cases"].push_back({{"inputs", inputs.name}, {"rungs", rungs}});
  }
  json["advice"] = advice_of(findings);
  return json;
}

}  // namespace octavo::cli
