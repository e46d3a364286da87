#include "cli/checkpoint/mix_run.h"

#include <algorithm>
#include <cmath>

#include "cli/checkpoint/checkpoint_watch.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "cli/text/option_words.h"
#include "cli/text/size_argument.h"
#include "cli/text/suggest.h"
#include "cli/usage.h"
#include "octavo/base/error.h"
#include "octavo/quant/scaling.h"

namespace octavo::cli {
namespace {

// Shares of recipes that are in the table: "62 nvfp4, 30 int4, 8 mxfp8".
std::string shares(const MixPoint& point, const std::vector<std::string>& recipes) {
  std::int64_t all = 0;
  for (const std::int64_t elements : point.elements) all += elements;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < point.elements.size(); ++i)
    if (point.elements[i] > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return point.elements[a] > point.elements[b];
  });
  std::string out;
  for (const std::size_t i : order) {
    const double share = 100 * static_cast<double>(point.elements[i]) /
                         static_cast<double>(std::max<std::int64_t>(1, all));
    out +=
        formatted("{}{:.{}f} % {}", out.empty() ? "" : ", ", share, share < 10 ? 1 : 0, recipes[i]);
  }
  return out;
}

std::string line(const MixPoint& point, const MixResult& mix, const char* mark) {
  return formatted("  {:>7.3f} {:>10} {:>8.3f} % {:>8} {} {}\n", point.bits_per_weight,
                   bytes_text(static_cast<double>(point.bytes)), 100 * std::sqrt(point.error),
                   point.error > 0 ? formatted("{:.2f}", sqnr_of(point)) : std::string("-"), mark,
                   shares(point, mix.recipes));
}

}  // namespace

std::optional<MixBudget> mix_budget(const char* op, const MixArguments& arguments) {
  const auto refuse = [&](const auto&... parts) {
    throw UsageError(text('[', op, "] ", parts...));
  };
  if (arguments.budget.empty() && arguments.fit.empty()) {
    if (!arguments.candidates.empty())
      refuse("got --candidates without --budget or --fit, by which they are chosen; expected one");
    return std::nullopt;
  }
  if (!arguments.budget.empty() && !arguments.fit.empty())
    refuse("got --budget and --fit; expected one of them");
  MixBudget out{.candidates = arguments.candidates};
  if (!arguments.fit.empty()) {
    out.bytes = size_argument(text('[', op, "] --fit:"), arguments.fit);
    if (out.bytes == 0) refuse("--fit: got no bytes; expected a size such as 24GiB");
  } else {
    try {
      out.bits_per_weight = parse_bits_per_weight(arguments.budget);
    } catch (const Error& error) {
      refuse("--budget: ", reason_of(error));
    }
  }
  for (const std::string& name : out.candidates) {
    if (name == "none") continue;
    std::vector<std::string> names = preset_names();
    names.emplace_back("none");
    try {
      (void)preset(name);
    } catch (const Error& error) {
      refuse("--candidates: ", reason_of(error), ", or none.",
             did_you_mean(name.substr(0, name.find(':')), names));
    }
  }
  return out;
}

MixChoice run_mix(const char* op, const std::string& model, const MixBudget& budget,
                  const QuantizeCheckpointOptions& options) {
  std::optional<MixChoice> out;
  {
    CheckpointWatch watch(op);
    QuantizeCheckpointOptions watched = options;
    watched.on_progress = watch.on_progress();
    try {
      out = choose_mix(model, budget, watched);
    } catch (const Error&) {
      if (!CheckpointWatch::interrupted()) throw;
    }
  }
  if (!out) {
    say(text("octavo: [", op, "] stopped while it measured; nothing was written"));
    CheckpointWatch::die();
  }
  return std::move(*out);
}

std::string mix_text(const MixResult& mix) {
  const Style style(stdout);
  std::string out =
      style.bold("mix") +
      formatted("  {}: {:.3f} taken, error {:.3f} %, in the mean over matrices\n", mix.budget,
                mix.chosen.bits_per_weight, 100 * std::sqrt(mix.chosen.error));
  out += formatted("  errors: {}\n", mix.measure);
  for (const auto& [recipe, why] : mix.impossible)
    out += formatted("  {} cannot: {}\n", recipe, octavo::shown(with_flags(why), 400));
  for (const std::string& recipe : mix.left_out)
    out += formatted("  {} is left out: no loader reads it beside the others\n", recipe);
  out += style.dim(formatted("  {:>7} {:>10} {:>10} {:>8}   {}", "bits", "size", "error", "SQNR dB",
                             "of the weights")) +
         "\n";
  // Of many points every third; the page has them all.
  std::vector<std::pair<MixPoint, const char*>> points;
  const std::size_t step = std::max<std::size_t>(1, mix.frontier.size() / 16);
  for (std::size_t i = 0; i < mix.frontier.size(); ++i)
    if (i % step == 0 || i + 1 == mix.frontier.size()) points.emplace_back(mix.frontier[i], " ");
  for (const MixPoint& point : mix.uniform) points.emplace_back(point, "=");
  points.emplace_back(mix.chosen, "*");
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return a.first.bits_per_weight < b.first.bits_per_weight;
  });
  for (const auto& [point, mark] : points) out += line(point, mix, mark);
  return out + "\n  *: chosen. =: one recipe for all that it fits. Others: mixes of least error.\n";
}

}  // namespace octavo::cli
