// octavo cast: converts a .npy file of values or codes to another type, by value, never with a
// scale.

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/npy/cast_plan.h"
#include "cli/npy/cast_stream.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/json_text.h"
#include "cli/text/number_text.h"
#include "cli/text/output_name.h"
#include "cli/usage.h"
#include "octavo/backend/registry.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/round/policy_names.h"
#include "octavo/round/profile.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo cast x.npy codes.npy --to e4m3fn                    float array to FP8 codes (uint8)
  octavo cast codes.npy y.npy --from e4m3fn --to float32     and back
  octavo cast x.npy c.npy --to e5m2 --profile torch          the bits that torch gives
  octavo cast x.npy c.npy --to e2m1fn --packed               FP4, two codes to a byte
  octavo cast x.npy c.npy --to bfloat16 --rounding stochastic --seed 7
  octavo cast x.npy c.npy --to e3m2fn --error --json         how far off, for a program to read

Values that are no float type of numpy (codes, bfloat16) are written as uint8 or uint16; numpy
sees them through a view: numpy.load('codes.npy').view(ml_dtypes.float8_e4m3fn).)";

// JSON has no NaN and no Inf.
nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json json_of(const CastOptions& options, const CastPlan& plan,
                               const CastResult& result) {
  nlohmann::ordered_json out{{"input", options.input},
                             {"output", options.output},
                             {"shape", plan.shape},
                             {"order", plan.output_header.fortran_order ? "fortran" : "c"},
                             {"elements", plan.rows * plan.cols},
                             {"from", plan.source.element.name()},
                             {"to", plan.target.element.name()},
                             {"from_packed", plan.source.packed},
                             {"packed", plan.target.packed},
                             {"dtype", descr_of(plan.output_header)},
                             {"policy", nullptr},
                             {"counts",
                              {{"saturated", result.counts.saturated},
                               {"flushed", result.counts.flushed},
                               {"nan", result.counts.nan}}},
                             {"error", nullptr},
                             {"backend", cpu_backend().name},
                             {"seconds", result.seconds}};
  if (plan.encodes) {
    out["policy"] = {{"profile", nullptr},
                     {"rounding", name_of(plan.policy.rounding)},
                     {"overflow", name_of(plan.policy.overflow)},
                     {"nan", name_of(plan.policy.nan_input)}};
    if (options.profile) out["policy"]["profile"] = *options.profile;
    if (plan.policy.rounding == Rounding::stochastic) {
      out["policy"]["seed"] = plan.policy.seed;
      out["policy"]["stochastic_bits"] = plan.policy.stochastic_bits;
    }
  }
  if (options.error) {
    out["error"] = {{"max_absolute", number(result.error.max_absolute)},
                    {"max_relative", number(result.error.max_relative)},
                    {"rms_relative", number(result.error.rms_relative)}};
  }
  return out;
}

void report(const CastOptions& options, const CastPlan& plan, const CastResult& result) {
  const Style style(stderr);
  const std::int64_t elements = plan.rows * plan.cols;
  std::string how;
  if (plan.encodes) {
    how = formatted(" ({}, {})", name_of(plan.policy.rounding), name_of(plan.policy.overflow));
  }
  say(formatted("{} {} {} -> {} {}{}", options.input, shape_text(plan.shape),
                plan.source.element.name(), options.output,
                style.bold(plan.target.element.name() + (plan.target.packed ? ", packed" : "")),
                how));
  const auto count = [&](std::int64_t n, std::string_view what) {
    const std::string line = formatted("{} {}", grouped(n), what);
    return n > 0 ? style.warn(line) : line;
  };
  const std::string lost = plan.exact
                               ? "all exact"
                               : formatted("{}, {}", count(result.counts.saturated, "saturated"),
                                           count(result.counts.flushed, "flushed to zero"));
  say(formatted("{}: {}, {}", grouped(elements, "element"), lost, count(result.counts.nan, "NaN")));
  if (options.error) {
    say(formatted("error: at most {:.4g} absolute, {:.4g} relative; {:.4g} relative rms",
                  result.error.max_absolute, result.error.max_relative, result.error.rms_relative));
  }
}

int run_cast(const CastOptions& options, const Globals& globals) {
  NpyReader input("cast", options.input);
  const CastPlan plan = plan_cast(options, input.header());
  if (input.is_same_file(options.output)) {
    fail(ErrorCode::io, "cast", "'", options.input, "' and '", options.output,
         "' are the same file; expected two; write to another name and rename it");
  }
  if (input.trailing_bytes() > 0) {
    say(formatted("octavo: [cast] note: '{}' has {} after its array; {} ignored", options.input,
                  grouped(input.trailing_bytes(), "byte"),
                  plural(input.trailing_bytes(), "it is", "they are")));
  }
  WholeFile output("cast", output_name("cast", options.output));
  const CastResult result = stream_cast(plan, input, output, options.error);
  output.commit();
  if (globals.json) {
    print(json_text(json_of(options, plan, result)));
  } else {
    report(options, plan, result);
  }
  return kGood;
}

}  // namespace

Command add_cast(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, "cast",
                     "Convert a .npy file between float types and small formats", kExamples);
  auto options = std::make_shared<CastOptions>();
  app->add_option("IN", options->input, "The .npy file to read")->required()->type_name("");
  app->add_option("OUT", options->output, "The .npy file to write; it appears whole or not at all")
      ->required()
      ->type_name("");
  app->add_option("--to", options->to,
                  "Format (e4m3fn, e3m2fn, any ExMy) or float64, float32, float16, bfloat16")
      ->required()
      ->type_name("TYPE");
  app->add_option("--from", options->from,
                  "What the codes in IN are; float arrays say it themselves")
      ->type_name("TYPE");
  app->add_option("--rounding", options->rounding,
                  listed(rounding_names()) + " (default nearest_even)")
      ->type_name("MODE");
  app->add_option(
         "--overflow", options->overflow,
         listed(overflow_names()) + " (default saturate for formats, ieee for float types)")
      ->type_name("RULE");
  app->add_option(
         "--nan", options->nan,
         "NaN into a format without NaN: " + listed(nan_input_names()) + " (default error)")
      ->type_name("RULE");
  app->add_option("--profile", options->profile,
                  "A peer's cast, bit for bit: " + listed(profile_names()))
      ->type_name("NAME");
  app->add_option("--seed", options->seed,
                  "Of stochastic rounding; the same seed gives the same bits (default 0)")
      ->type_name("N")
      ->check(seed_problem);
  app->add_option("--stochastic-bits", options->stochastic_bits,
                  "Random bits of a stochastic rounding, 1 to 16 (default 16)")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxStochasticBits).description(""));
  app->add_flag("--packed", options->packed,
                "Pack codes of fewer than 8 bits in OUT; rows begin on a byte");
  app->add_flag("--from-packed", options->from_packed, "The codes in IN are packed");
  app->add_option("--columns", options->columns,
                  "Length of a row of packed IN (default: as many as its bytes hold)")
      ->type_name("N");
  app->add_option("--threads", options->threads,
                  "Maximum number of threads (default 0: every core, or OCTAVO_THREADS)")
      ->type_name("N")
      ->check(CLI::Range(0, kMaxThreads).description(""));
  app->add_flag("--error", options->error, "Also measure how far OUT is from IN");
  return {app, [options, &globals] { return run_cast(*options, globals); }};
}

}  // namespace octavo::cli
