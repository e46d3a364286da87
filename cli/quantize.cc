// octavo quantize: quantizes a whole checkpoint (quantize_checkpoint_run.cc), or shows the error of
// a quantization on an array, in numbers and in a plot.

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/checkpoint/gate_argument.h"
#include "cli/checkpoint/quantize_checkpoint_run.h"
#include "cli/checkpoint/shared_options.h"
#include "cli/command.h"
#include "cli/quantize_sweep.h"
#include "cli/tensor/quantize_input.h"
#include "cli/tensor/quantize_plan.h"
#include "cli/tensor/quantize_report.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/json_text.h"
#include "cli/text/names.h"
#include "cli/text/output_name.h"
#include "cli/usage.h"
#include "octavo/base/error.h"
#include "octavo/base/file/file_id.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/quantized_file.h"
#include "octavo/quant/quantize.h"
#include "octavo/report/choose_format.h"
#include "octavo/round/policy_names.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo quantize model/ -o out/ --recipe fp8-channel                a folder that servers load
  octavo quantize model/ -o out/ --recipe nvfp4 --report report.html
  octavo quantize model/ --recipe mxfp8 --dry-run                    plan and sizes
  octavo quantize model/ --compare fp8-channel,mxfp8,nvfp4 --report recipes.html
  octavo quantize model/ -o out/ --recipe nvfp4 --recipe-for 'down_proj=mxfp8' --exclude '\.0\.'
  octavo quantize model/ -o out/ --budget 4.5bpw --report report.html   a recipe for each part
  octavo quantize model/ -o out/ --recipe fp8-block --target deepseek --fail-if 'cosine<0.999'

  octavo quantize --plan plan.json -o out/ --rank 0 --world 8        one of eight processes

Of arrays:
  octavo quantize x.npy --recipe mxfp8                       what MXFP8 does to an array
  octavo quantize x.npy --recipe nvfp4 --plot error.svg      where the error is, as a picture
  octavo quantize x.npy --recipe mxfp8:e5m2 --scale-rule floor
  octavo quantize x.npy --format e3m4 --tile row --scale bf16
  octavo quantize x.npy --recipe fp8 --scale-policy percentile:99.9
  octavo quantize x.npy --recipe mxfp4 --fail-if 'cosine<0.99' --fail-if 'sqnr<18'
  octavo quantize x.npy --recipe mxfp8 -o x.safetensors      codes and scales in a file
  octavo quantize x.npy --recipe fp8-block --json            for a program to read

Of both:
  octavo quantize x.npy --sweep recipe=mxfp8,mxfp4 --sweep tile=16,32,64,128 --report sweep.html

Tiles are rows x columns of elements that share a scale. With --fail-if the exit code is 3 when a
limit is missed, and also when a result is NaN or Inf, which no metric counts. A checkpoint misses a
limit when one of its tensors does, and is written nevertheless.)";

using Clock = std::chrono::steady_clock;

QuantizedTensor quantized(const QuantizeInput& input, const Scaling& scaling, int threads) {
  try {
    (void)scale_shape(input.values.shape, scaling);  // throws if the axis is invalid
  } catch (const Error& error) {
    throw UsageError(text("[quantize] ", reason_of(error)));
  }
  try {
    return quantize(input.values, scaling, {.threads = threads});
  } catch (const Error& error) {
    const bool nan_refused = error.code() == ErrorCode::invalid_argument &&
                             !scaling.format.has_nan() &&
                             scaling.encode.nan_input == NanInput::error;
    if (!nan_refused) throw;
    fail(ErrorCode::invalid_argument, "quantize", "the input holds NaN, and ",
         Element{DType::code, scaling.format}.name(),
         " cannot; say what it becomes with --nan zero or --nan max",
         is_peer(scaling.scale.arith)
             ? text("; --arith ", name_of(scaling.scale.arith), " never poisons a tile with it")
             : ", or let it poison its tile with --non-finite poison");
  }
}

// Under the name of the array's file, without its extension.
void save(const QuantizeArguments& arguments, const QuantizedTensor& q) {
  const std::string name = std::filesystem::path(arguments.input).stem().string();
  save_quantized(arguments.output, {{name, q}});
  say(formatted("wrote {}: {}, {}.scales", arguments.output, name, name));
}

// Called before the work, so that an invalid output name is reported at once.
void check_outputs(const QuantizeArguments& arguments) {
  for (const std::string* output : {&arguments.output, &arguments.plot}) {
    if (output->empty()) continue;
    const auto there = file_id(output_name("quantize", *output));
    if (there && there == file_id(arguments.input))
      fail(ErrorCode::io, "quantize", "'", arguments.input, "' and '", *output,
           "' are the same file; expected two; write to another name");
    const bool is_plot = output == &arguments.plot;
    check_ending("quantize", is_plot ? "--plot" : "-o", *output, is_plot ? ".svg" : ".safetensors");
    const WholeFile could_be_written("quantize", *output);
  }
}

int run_quantize(const QuantizeArguments& arguments, const Globals& globals) {
  QuantizeReport report{.input = arguments.input, .scaling = plan_scaling(arguments)};
  report.gates = gate_arguments("quantize", arguments.gates);
  check_outputs(arguments);
  // A code and at most one f32 scale per element.
  const double more_bytes_each = report.scaling.format.code_bytes() + sizeof(float);
  const QuantizeInput input =
      read_quantize_input("quantize", arguments.input, arguments.from, more_bytes_each);
  const int threads = arguments.threads.value_or(0);
  if (arguments.format == kMeasuredFormat)
    report.scaling = choose_format(input.values, report.scaling, threads);
  const Clock::time_point start = Clock::now();
  const QuantizedTensor q = quantized(input, report.scaling, threads);
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report.shape = q.shape;
  if (const std::string note = note_of(report); !note.empty())
    say(text("octavo: [quantize] note: ", note));
  report.dtype = q.source;
  report.tile_grid = q.rowwise.scales.shape();
  report.nbytes = q.nbytes();
  report.metrics = measure_error(
      input.values, q, {.rows = true, .tiles = true, .histograms = true, .threads = threads});

  if (!arguments.plot.empty()) {
    write_whole_file("quantize", arguments.plot, plot_of(report));
    say(formatted("wrote {}", arguments.plot));
  }
  print(globals.json ? json_text(json_of(report)) : table_of(report));
  bool missed = false;
  for (const Gate& gate : report.gates) {
    if (!misses(report, gate)) continue;
    missed = true;
    const std::string why =
        gate.is_violated_by(report.metrics)
            ? formatted("{} is {:.6g}", gate.metric_name, gate.value(report.metrics))
            : "some results are NaN or Inf, which no metric counts";
    say(formatted("{} [quantize] limit missed: {} (--fail-if '{}')", Style(stderr).bad("octavo:"),
                  why, gate.typed));
  }
  if (!arguments.output.empty() && !missed) save(arguments, q);
  return missed ? kGateMissed : kGood;
}

void add_scaling_options(CLI::App& app, QuantizeArguments& arguments) {
  add_recipe_options(app, arguments);
  app.add_option("--axis", arguments.axis,
                 "The dimension that the columns of a tile run along (default -1, the last)")
      ->type_name("N");
  app.add_option("--margin", arguments.margin, "Scales are multiplied by 2^N (default 0)")
      ->type_name("N");
}

void add_encoding_options(CLI::App& app, QuantizeArguments& arguments) {
  app.add_option("--rounding", arguments.rounding,
                 listed(rounding_names()) + " (default nearest_even)")
      ->type_name("MODE");
  app.add_option("--overflow", arguments.overflow, listed(overflow_names()) + " (default saturate)")
      ->type_name("RULE");
  add_non_finite_option(app, arguments.non_finite,
                        "What NaN and Inf of an array do to their tile: poison (default: all of it "
                        "becomes NaN), or saturate; those of a checkpoint are an error (default), "
                        "or clamp");
  app.add_option("--nan", arguments.nan,
                 "With saturate, NaN into a format without NaN: " + listed(nan_input_names()))
      ->type_name("RULE");
  app.add_option("--seed", arguments.seed, "Of stochastic rounding (default 0)")
      ->type_name("N")
      ->check(seed_problem);
  app.add_option("--stochastic-bits", arguments.stochastic_bits,
                 "Random bits of a stochastic rounding, 1 to 16 (default 16)")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxStochasticBits).description(""));
}

}  // namespace

Command add_quantize(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, "quantize",
                     "Quantize a checkpoint or an array, and show what that loses", kExamples);
  auto arguments = std::make_shared<QuantizeArguments>();
  auto for_checkpoints = std::make_shared<CheckpointArguments>();
  app->add_option("IN", arguments->input,
                  "A model: a folder, a .safetensors or a .gguf file; or an array: a .npy file. "
                  "With --plan it may be left out: the plan says where the model is")
      ->type_name("");
  add_scaling_options(*app, *arguments);
  add_encoding_options(*app, *arguments);
  app->add_option("--from", arguments->from,
                  "What the elements of IN are where it does not say: bfloat16")
      ->type_name("TYPE");
  app->add_option("-o,--output", arguments->output,
                  "Where a checkpoint goes: a folder that is not there yet. Of an array: codes and "
                  "scales to a "
                  ".safetensors file, unless a limit of --fail-if is missed")
      ->type_name("FILE");
  app->add_option("--plot", arguments->plot, "Also write a picture (SVG) of where the error is")
      ->type_name("FILE");
  app->add_option(
         "--fail-if", arguments->gates,
         "The limit is missed, and the exit code 3, if this holds, such as 'cosine<0.999'; of " +
             listed(gate_metric_names()) + "; may be repeated")
      ->type_name("LIMIT")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--threads", arguments->threads,
                  "Maximum number of threads (default 0: every core, or OCTAVO_THREADS)")
      ->type_name("N")
      ->check(CLI::Range(0, kMaxThreads).description(""));
  app->add_option("--sweep", arguments->sweep,
                  "Try each of these values of an option, and with a second --sweep all pairs; "
                  "show error, size and time, with --report as a page; write nothing else. "
                  "Options: " +
                      listed(sweep_options()))
      ->type_name("OPTION=VALUES")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  add_checkpoint_options(*app, *for_checkpoints);
  add_shared_options(*app, for_checkpoints->shared);
  group_options_by_input(*app);
  return {app, [app, arguments, for_checkpoints, &globals] {
            if (arguments->input.ends_with(".npy")) check_kind_of_options(*app, false);
            check_shared_options("quantize", *app, for_checkpoints->shared);
            if (is_shared(for_checkpoints->shared)) {
              check_kind_of_options(*app, true);
              return run_quantize_checkpoint(*arguments, *for_checkpoints, globals);
            }
            if (arguments->input.empty())
              throw UsageError("[quantize] IN is required; see octavo quantize --help");
            if (arguments->input != "-")
              check_input("quantize", arguments->input,
                          "a model (a folder, a .safetensors or a .gguf file) or an array (a .npy "
                          "file)");
            const bool checkpoint = is_checkpoint(arguments->input);
            check_kind_of_options(*app, checkpoint);
            if (!arguments->sweep.empty())
              return run_sweep(*arguments, *for_checkpoints, checkpoint, globals);
            return checkpoint ? run_quantize_checkpoint(*arguments, *for_checkpoints, globals)
                              : run_quantize(*arguments, globals);
          }};
}

}  // namespace octavo::cli
