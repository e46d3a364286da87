#include "cli/quantize_sweep.h"

#include <algorithm>
#include <filesystem>

#include "cli/checkpoint/checkpoint_watch.h"
#include "cli/tensor/quantize_input.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "cli/text/option_words.h"
#include "cli/text/output_name.h"
#include "cli/text/size_argument.h"
#include "cli/usage.h"
#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"

namespace octavo::cli {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(text("[quantize] ", parts...));
}

// Options that write something else, judge, or say what a sweep has no word for.
void refuse_others(const QuantizeArguments& common, const CheckpointArguments& arguments) {
  const auto no = [](bool given, const char* name, const char* why) {
    if (given) refuse("got --sweep and ", name, "; ", why);
  };
  constexpr const char* kFixed = "a sweep has the recipe's own; leave it out";
  no(!common.output.empty(), "-o", "--sweep writes no tensors; leave it out");
  no(!common.plot.empty(), "--plot", "--report is the page of a sweep");
  no(!common.gates.empty(), "--fail-if", "limits are for one setting; leave it out");
  no(!arguments.compare.empty(), "--compare", "say --sweep recipe= for several recipes");
  no(!arguments.mix.budget.empty(), "--budget", "say --sweep recipe= for several recipes");
  no(!arguments.mix.fit.empty(), "--fit", "say --sweep recipe= for several recipes");
  no(arguments.dry_run, "--dry-run", "leave one of them out");
  no(arguments.resume, "--resume", "there is nothing to go on with");
  no(common.margin.has_value(), "--margin", kFixed);
  no(common.axis.has_value(), "--axis", kFixed);
  no(common.rounding.has_value(), "--rounding", kFixed);
  no(common.overflow.has_value(), "--overflow", kFixed);
  no(common.nan.has_value(), "--nan", kFixed);
  no(common.seed.has_value(), "--seed", kFixed);
  no(common.stochastic_bits.has_value(), "--stochastic-bits", kFixed);
  no(arguments.gptq.method != "rtn", "--method", "a sweep rounds to nearest; leave it out");
  no(arguments.delete_source, "--delete-source-shards", "a sweep deletes nothing; leave it out");
}

std::vector<SweepAxis> axes_of(const QuantizeArguments& common) {
  std::vector<SweepAxis> axes;
  const auto also = [&](const char* option, bool given) {
    if (!given) return;
    for (const SweepAxis& axis : axes)
      if (axis.option == option)
        refuse("got --", option, " and --sweep ", option, "=; expected one of them");
  };
  for (const std::string& typed : common.sweep) {
    try {
      axes.push_back(parse_sweep(typed));
    } catch (const Error& error) {
      refuse("--sweep: ", reason_of(error));
    }
  }
  also("recipe", common.recipe.has_value());
  also("format", common.format.has_value());
  also("tile", common.tile.has_value());
  also("scale", common.scale.has_value());
  also("scale-rule", common.rule.has_value());
  also("scale-policy", common.policy.has_value());
  also("arith", common.arith.has_value());
  return axes;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return formatted("{:.2f} s", seconds);
  return seconds >= 1e-3 ? formatted("{:.2f} ms", seconds * 1e3)
                         : formatted("{:.1f} us", seconds * 1e6);
}

std::string table_of(const SweepResult& sweep) {
  const Style style(stdout);
  std::size_t wide = 7;
  for (const SweepPoint& point : sweep.points) wide = std::max(wide, name_of(point).size());
  std::string out = style.bold(octavo::shown(sweep.title, 100));
  out += formatted("  {} before, nothing written{}\n",
                   bytes_text(static_cast<double>(sweep.bytes_before)),
                   sweep.target.empty() ? "" : ", for " + sweep.target);
  out += style.dim(formatted("  {:<{}} {:>7} {:>10} {:>8} {:>9} {:>10} {:>10}", "setting", wide,
                             "bits", "size", "SQNR dB", "error", "cosine", "time")) +
         "\n";
  const std::vector<bool> best = best_of(sweep);
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepPoint& point = sweep.points[i];
    const std::string name = octavo::shown(name_of(point));
    if (!point.why_not.empty()) {
      out += formatted("  {:<{}} cannot: {}\n", name, wide,
                       octavo::shown(with_flags(point.why_not), 400));
      continue;
    }
    out += formatted("  {:<{}} {:>7.3f} {:>10} {:>8.2f} {:>7.3f} % {:>10.7f} {:>10}{}\n", name,
                     wide, point.bits_per_value, bytes_text(static_cast<double>(point.bytes)),
                     point.sqnr, 100 * point.relative_l2, point.cosine, time_text(point.seconds),
                     best[i] ? " *" : "");
    if (point.uncounted > 0)
      out += formatted("  {:<{}} of {} values there is no error: they became NaN or Inf\n", "",
                       wide, point.uncounted);
  }
  out +=
      formatted("\n  *: no other setting has fewer bits and less error. time: {}\n", sweep.timed);
  return out;
}

SweepResult of_checkpoint(const QuantizeArguments& common, const CheckpointArguments& arguments,
                          const std::vector<SweepAxis>& axes, const QuantizePlanOptions& plan) {
  QuantizeCheckpointOptions options{
      .plan = plan, .threads = common.threads.value_or(0), .follow_links = arguments.follow_links};
  if (!arguments.max_memory.empty())
    options.max_memory = memory_argument("[quantize] --max-memory:", arguments.max_memory);
  CheckpointWatch watch("quantize");
  options.on_progress = watch.on_progress();
  return sweep_checkpoint(common.input, axes, options);
}

SweepResult of_array(const QuantizeArguments& common, const std::vector<SweepAxis>& axes,
                     const QuantizePlanOptions& plan) {
  const QuantizeInput input = read_quantize_input("quantize", common.input, common.from, 5.0);
  SweepResult out = sweep_array(input.values, axes, plan, common.threads.value_or(0));
  out.title = std::filesystem::path(common.input).filename().string();
  out.source = common.input;
  return out;
}

}  // namespace

int run_sweep(const QuantizeArguments& common, const CheckpointArguments& arguments,
              bool checkpoint, const Globals& globals) {
  refuse_others(common, arguments);
  (void)gptq_calibration(arguments.gptq);  // options that are its alone
  const std::vector<SweepAxis> axes = axes_of(common);
  const QuantizePlanOptions plan = plan_options(common, arguments);
  const bool sweeps_recipes = std::any_of(
      axes.begin(), axes.end(), [](const SweepAxis& axis) { return axis.option == "recipe"; });
  if (plan.recipe.empty() && !sweeps_recipes)
    refuse("got --sweep without a recipe; say --recipe NAME, or --sweep recipe=NAME,NAME");
  if (!arguments.report.empty()) {
    check_ending("quantize", "--report", arguments.report, ".html");
    const WholeFile could_be_written("quantize", output_name("quantize", arguments.report));
  }
  SweepResult sweep;
  bool done = false;
  try {
    sweep =
        checkpoint ? of_checkpoint(common, arguments, axes, plan) : of_array(common, axes, plan);
    done = true;
  } catch (const Error&) {
    if (!CheckpointWatch::interrupted()) throw;
  }
  if (!done) CheckpointWatch::die();
  if (!arguments.report.empty()) {
    write_whole_file("quantize", arguments.report, html_of(sweep));
    say(formatted("wrote {}", octavo::shown(arguments.report, 400)));
  }
  print(globals.json ? json_of(sweep) + "\n" : table_of(sweep));
  return kGood;
}

}  // namespace octavo::cli
