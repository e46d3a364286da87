#include "cli/checkpoint/checkpoint_text.h"

#include <algorithm>
#include <cmath>

#include "cli/checkpoint/name_column.h"
#include "cli/checkpoint/verdict.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "cli/text/option_words.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

constexpr std::size_t kWorstShown = 5, kNameWidth = 52, kBeside = 41;

std::string percent(double share) {
  if (share == 0) return "0 %";
  return share < 1e-4 ? "<0.01 %" : formatted("{:.2f} %", 100 * share);
}

std::string worst_rows(const CheckpointReport& report) {
  NameColumn names(kNameWidth, kBeside);
  for (const std::size_t i : report.worst(kWorstShown)) names.fit(report.tensors[i].name);
  std::string out = "\n" +
                    names.row("  ", "worst tensors",
                              formatted(" {:>7}  {:>8} {:>8} {:>9}", "SQNR dB", "cosine", "flushed",
                                        "saturated")) +
                    "\n";
  for (const std::size_t i : report.worst(kWorstShown)) {
    const TensorReport& tensor = report.tensors[i];
    const ErrorMetrics& m = tensor.metrics;
    if (report.verb == "compare" && is_equal(tensor)) break;
    out += names.row("  ", tensor.name,
                     formatted(" {:>7.2f}  {:.6f} {:>8} {:>9}{}", m.sqnr, m.cosine,
                               percent(m.flushed_share), percent(m.saturated_share),
                               uncounted(tensor) > 0 ? formatted("  without {} NaN or Inf",
                                                                 grouped(uncounted(tensor)))
                                                     : "")) +
           "\n";
  }
  return out;
}

// "; normal weights: 31.5 dB", where all tensors have one format.
std::string normal_text(const CheckpointReport& report) {
  double least = INFINITY, most = -INFINITY;
  for (const TensorReport& tensor : report.tensors) {
    if (!tensor.measured || tensor.preset.empty()) continue;
    if (std::isnan(tensor.expected_sqnr)) return "";
    least = std::min(least, tensor.expected_sqnr);
    most = std::max(most, tensor.expected_sqnr);
  }
  return most - least < 0.5 ? formatted("; normal weights: {:.1f} dB", (least + most) / 2) : "";
}

}  // namespace

std::string summary_text(const CheckpointReport& report) {
  const Style style(stdout);
  const auto line = [](std::string_view key, const std::string& value) {
    return formatted("  {:<9} {}\n", key, value);
  };
  const std::string head =
      report.verb == "compare"
          ? formatted("{} and {}", octavo::shown(report.source, 200),
                      octavo::shown(report.output, 200))
          : formatted("{} to {}{}", octavo::shown(report.title, 100), octavo::shown(report.recipe),
                      report.target.empty() ? "" : " for " + octavo::shown(report.target));
  std::string out = style.bold(head);
  const auto before = static_cast<double>(report.bytes_before),
             after = static_cast<double>(report.bytes_after);
  if (report.seconds > 0)
    out += formatted("  {:.2f} s, {}/s", report.seconds, bytes_text(before / report.seconds));
  out += "\n";
  out += line("size", formatted("{} -> {}{}", bytes_text(before), bytes_text(after),
                                before > 0 ? formatted(" ({:.1f} %)", 100 * after / before) : ""));
  const auto quantized = std::count_if(report.tensors.begin(), report.tensors.end(),
                                       [](const TensorReport& t) { return !t.preset.empty(); });
  out +=
      line("tensors", formatted("{} of {} quantized{}", quantized, report.tensors.size(),
                                report.bits_per_weight > 0
                                    ? formatted(", {:.2f} bits per weight", report.bits_per_weight)
                                    : ""));
  std::vector<std::size_t> order = report.worst(report.tensors.size());
  if (report.verb == "compare") {
    const std::size_t measured = order.size();
    std::erase_if(order, [&](std::size_t i) { return is_equal(report.tensors[i]); });
    out +=
        line("equal", formatted("{} of {}", measured - order.size(), counted(measured, "tensor")));
  }
  if (!order.empty()) {
    const double median = report.tensors[order[order.size() / 2]].metrics.sqnr;
    const double worst = report.tensors[order[0]].metrics.sqnr;
    double cosine = 1;
    std::int64_t before_lost = 0, after_lost = 0, not_counted = 0;
    for (const std::size_t i : order) {
      const ErrorMetrics& m = report.tensors[i].metrics;
      cosine = std::min(cosine, m.cosine);
      before_lost += m.input.nan + m.input.inf;
      after_lost += m.result.nan + m.result.inf;
      not_counted += uncounted(report.tensors[i]);
    }
    out += line("SQNR", formatted("median {:.2f} dB, worst {:.2f} dB; lowest cosine {:.6f}{}",
                                  median, worst, cosine, normal_text(report)));
    if (not_counted > 0 && report.verb == "compare")
      out += line("", style.bad(formatted("{} {} NaN or Inf in A and {} in B; no metric counts "
                                          "them",
                                          grouped(before_lost, "value"),
                                          plural(before_lost, "is", "are"), grouped(after_lost))));
    else if (after_lost > 0)
      out += line("", style.bad(formatted("{} {} NaN or Inf", grouped(after_lost, "value"),
                                          plural(after_lost, "is", "are"))));
    out += worst_rows(report);
    const TensorReport& first = report.tensors[order[0]];
    if (!first.advice.empty())
      out += formatted("\n  advice for {}: {}\n", octavo::shown(first.name, 160),
                       octavo::shown(first.advice, 200));
    if (!first.recipe_for.empty())
      out += formatted("    --recipe-for '{}'\n", octavo::shown(first.recipe_for, 500));
  }
  out += notes_text(report.notes);
  return out;
}

std::string notes_text(const std::vector<std::string>& notes) {
  std::string out;
  for (const std::string& note : limit_repeats(notes))
    out += formatted("  note: {}\n", octavo::shown(with_flags(note), 400));
  return out;
}

void say_written(std::string_view op, const std::string& output, bool was_complete,
                 const std::vector<std::string>& written_again) {
  const std::string name = octavo::shown(output, 400);
  for (const std::string& file : written_again)
    say(formatted("octavo: [{}] {} was missing in {} and is written again", op,
                  octavo::shown(file, 160), name));
  say(was_complete ? formatted("octavo: [{}] {} is complete; there is nothing to resume", op, name)
                   : formatted("wrote {}", name));
}

bool misses_gates(std::string_view op, const CheckpointReport& report,
                  const std::vector<Gate>& gates) {
  const std::vector<MissedGate> missed = missed_gates(report, gates);
  for (const MissedGate& one : missed)
    say(formatted("{} [{}] limit missed: {} (--fail-if '{}')", Style(stderr).bad("octavo:"), op,
                  one.what, octavo::shown(one.typed)));
  return !missed.empty();
}

}  // namespace octavo::cli
