#include "cli/checkpoint/compare_recipes_run.h"

#include <algorithm>
#include <cmath>

#include "cli/checkpoint/checkpoint_text.h"
#include "cli/checkpoint/checkpoint_watch.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "cli/text/option_words.h"
#include "cli/text/output_name.h"
#include "cli/usage.h"
#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/pipeline/compare_recipes.h"

namespace octavo::cli {
namespace {

constexpr std::size_t kWorstShown = 3;

// Options that write a checkpoint, or judge one.
void refuse_others(const QuantizeArguments& common, const CheckpointArguments& arguments) {
  const auto refuse = [](bool given, const char* name, const char* why) {
    if (given) throw UsageError(text("[quantize] got --compare and ", name, "; ", why));
  };
  refuse(common.recipe.has_value(), "--recipe", "put that recipe among those of --compare");
  refuse(!common.output.empty(), "-o",
         "--compare writes no model; leave -o out, and quantize with the recipe you choose");
  refuse(arguments.dry_run, "--dry-run", "leave one of them out");
  refuse(arguments.resume, "--resume", "there is nothing to go on with");
  refuse(!common.gates.empty(), "--fail-if", "limits are for one recipe; leave it out");
}

double lowest_cosine(const CheckpointReport& report) {
  double cosine = 1;
  for (const TensorReport& tensor : report.tensors)
    if (tensor.measured) cosine = std::min(cosine, tensor.metrics.cosine);
  return cosine;
}

std::string row_of(const RecipeComparison& comparison, const RecipeOutcome& outcome) {
  const std::string name = octavo::shown(outcome.recipe);
  const CheckpointReport& report = outcome.report;
  const std::vector<std::size_t> worst = report.worst(1);
  if (!outcome.why_not.empty())
    return formatted("  {:<14} cannot: {}\n", name,
                     octavo::shown(with_flags(outcome.why_not), 400));
  if (worst.empty()) return formatted("  {:<14} nothing is quantized\n", name);
  return formatted("  {:<14} {:>10} {:>6.1f} % {:>6.2f} {:>8.2f} {:>8.1f} {:>8.2f} {:>9.6f}  {}\n",
                   name, bytes_text(static_cast<double>(report.bytes_after)),
                   100 * static_cast<double>(report.bytes_after) /
                       static_cast<double>(std::max<std::uint64_t>(1, comparison.bytes_before)),
                   report.bits_per_weight, median_sqnr(report), median_expected_sqnr(report),
                   order_of(report.tensors[worst[0]]), lowest_cosine(report),
                   !outcome.loads.empty()          ? joined(outcome.loads, ", ")
                   : outcome.does_not_load.empty() ? "not for servers"
                                                   : "none");
}

std::string comparison_text(const RecipeComparison& comparison) {
  const Style style(stdout);
  std::string out = style.bold(formatted("{} for {}", octavo::shown(comparison.title, 100),
                                         octavo::shown(comparison.target)));
  out += formatted("  {} before, nothing written, {:.2f} s\n",
                   bytes_text(static_cast<double>(comparison.bytes_before)), comparison.seconds);
  out +=
      style.dim(formatted("  {:<14} {:>10} {:>8} {:>6} {:>8} {:>8} {:>8} {:>9}  {}", "recipe",
                          "size", "", "bits", "SQNR dB", "normal", "worst", "cosine", "loads in")) +
      "\n";
  for (const RecipeOutcome& outcome : comparison.recipes) out += row_of(comparison, outcome);
  out += formatted("\n  {:<14} {:<52} {:>7} {:>7}\n", "worst tensors", "", "SQNR dB", "normal");
  for (const RecipeOutcome& outcome : comparison.recipes)
    for (const std::size_t i : outcome.report.worst(kWorstShown)) {
      const TensorReport& tensor = outcome.report.tensors[i];
      out += formatted("  {:<14} {:<52} {:>7.2f} {:>7.1f}\n", octavo::shown(outcome.recipe),
                       octavo::shown(tensor.name, 160), order_of(tensor), tensor.expected_sqnr);
    }
  out +=
      "\n  SQNR: median over tensors; normal: what normal (Gaussian) weights have; loaders by the "
      "rules of verify.\n  This is the error of weights: no data was seen, and what the model "
      "loses "
      "is not known from it.\n";
  return out;
}

}  // namespace

int run_compare_recipes(const QuantizeArguments& common, const CheckpointArguments& arguments,
                        QuantizeCheckpointOptions options, const Globals& globals) {
  refuse_others(common, arguments);
  if (!arguments.report.empty())
    const WholeFile could_be_written("quantize", output_name("quantize", arguments.report));
  RecipeComparison comparison;
  bool done = false;
  {
    CheckpointWatch watch("quantize");
    options.on_progress = watch.on_progress();
    try {
      comparison = compare_recipes(common.input, arguments.compare, options);
      done = true;
    } catch (const Error&) {
      if (!CheckpointWatch::interrupted()) throw;
    }
  }
  if (!done) CheckpointWatch::die();
  if (!arguments.report.empty()) {
    write_whole_file("quantize", arguments.report, html_of(comparison));
    say(formatted("wrote {}", octavo::shown(arguments.report, 400)));
  }
  print(globals.json ? json_of(comparison) + "\n" : comparison_text(comparison));
  return kGood;
}

}  // namespace octavo::cli
