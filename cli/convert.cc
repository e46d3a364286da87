// octavo convert and octavo dequantize: a quantized checkpoint in another dialect, or dequantized.
// One file, because both run the same pipeline.

#include <functional>
#include <memory>
#include <optional>

#include "cli/checkpoint/checkpoint_text.h"
#include "cli/checkpoint/checkpoint_watch.h"
#include "cli/checkpoint/quantize_checkpoint_options.h"
#include "cli/checkpoint/shared_options.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/names.h"
#include "cli/text/number_text.h"
#include "cli/text/output_name.h"
#include "cli/text/size_argument.h"
#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/base/thread_pool.h"
#include "octavo/pipeline/convert_checkpoint.h"

namespace octavo::cli {
namespace {

constexpr const char* kConvertExamples = R"(Examples:
  octavo convert out/ -o out-modelopt/ --target modelopt
  octavo convert out/ -o out-comfyui/ --target comfyui
  octavo convert model.gguf -o model/                     a folder of bf16
  octavo convert mxfp4/ -o model.gguf --target gguf       for llama.cpp
  octavo convert --plan plan.json -o out/ --rank 0 --world 8   one of eight processes

Codes and scales of weights are unchanged, bit by bit: nothing is quantized again.
Static activation and KV cache scales are converted where the target supports them.)";

constexpr const char* kDequantizeExamples = R"(Examples:
  octavo dequantize deepseek/ -o deepseek-bf16/ --dtype bf16
  octavo dequantize out/ -o plain/ --dtype f32)";

struct Arguments {
  std::string input, output, target, dtype = "bf16", max_memory;
  std::optional<std::string> non_finite;
  int threads = 0;
  bool resume = false, follow_links = false;
  SharedArguments shared{};
};

using Work = std::function<ConvertCheckpointResult(const ConvertCheckpointOptions&)>;

int run(const std::string& op, const Arguments& arguments, const Globals& globals,
        const Work& work) {
  if (!is_shared(arguments.shared)) check_model(op, arguments.input);  // else the plan names it
  output_name(op, arguments.output);
  ConvertCheckpointOptions options{.threads = arguments.threads,
                                   .resume = arguments.resume,
                                   .follow_links = arguments.follow_links,
                                   .clamp_non_finite = is_clamped(op, arguments.non_finite)};
  options.shared = shared_run(op, arguments.shared);
  if (!arguments.max_memory.empty())
    options.max_memory = memory_argument(text('[', op, "] --max-memory:"), arguments.max_memory);
  ConvertCheckpointResult result;
  bool done = false;
  {
    CheckpointWatch watch(op);
    options.on_progress = watch.on_progress();
    try {
      result = work(options);
      done = true;
    } catch (const Error&) {
      if (!CheckpointWatch::interrupted()) throw;
    }
  }
  if (!done) {
    say(text("octavo: [", op, "] stopped; the same command ",
             options.shared ? "" : "with --resume ", "goes on from here"));
    CheckpointWatch::die();
  }
  if (globals.json) {
    Json notes = Json::array(), again = Json::array();
    for (const std::string& note : result.notes) notes.push(note);
    for (const std::string& file : result.written_again) again.push(file);
    print(Json::object({{"from", name_of(result.from)},
                        {"output", arguments.output},
                        {"weights", result.weights},
                        {"bytes_before", static_cast<std::int64_t>(result.bytes_before)},
                        {"bytes_after", static_cast<std::int64_t>(result.bytes_after)},
                        {"seconds", result.seconds},
                        {"was_complete", result.was_complete},
                        {"written_again", std::move(again)},
                        {"notes", std::move(notes)}})
              .dump() +
          "\n");
  } else if (!result.was_complete && !result.finished_by_another) {
    const auto before = static_cast<double>(result.bytes_before);
    print(formatted("{} of {}, {} -> {}, {:.2f} s\n", grouped(result.weights, "weight"),
                    name_of(result.from), bytes_text(before),
                    bytes_text(static_cast<double>(result.bytes_after)), result.seconds));
    print(notes_text(result.notes));
  }
  finish_stdout();  // before messages about it on stderr
  if (options.shared) {
    say(shared_text(*options.shared, arguments.output, result.files_written,
                    result.files_taken_over, !result.finished_by_another, result.was_complete,
                    result.written_again));
    if (result.finished_by_another || result.was_complete) return kGood;
  }
  say_written(op, arguments.output, result.was_complete, result.written_again);
  return kGood;
}

void add_common(CLI::App& app, Arguments& arguments, bool required) {
  app.add_option("MODEL", arguments.input,
                 "A quantized checkpoint: a folder, a .safetensors or a .gguf file")
      ->required(required)
      ->type_name("");
  app.add_option("-o,--output", arguments.output, "A folder (or file) that is not there yet")
      ->required()
      ->type_name("FILE");
  app.add_option("--max-memory", arguments.max_memory,
                 "For what is read and written, such as 64M (default 256M)")
      ->type_name("SIZE");
  app.add_option("--threads", arguments.threads,
                 "Maximum number of threads (default 0: every core, or OCTAVO_THREADS)")
      ->type_name("N")
      ->check(CLI::Range(0, kMaxThreads).description(""));
  app.add_flag("--resume", arguments.resume, "Go on where an earlier call stopped");
  add_follow_links_flag(app, arguments.follow_links);
}

}  // namespace

std::vector<std::string> dequantized_dtype_names() { return {"bf16", "f16", "f32"}; }

Command add_convert(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(program, globals, "convert",
                                 "Convert a quantized checkpoint to another dialect, without loss",
                                 kConvertExamples);
  auto arguments = std::make_shared<Arguments>();
  add_common(*app, *arguments, false);
  add_shared_options(*app, arguments->shared);
  app->add_option("--target", arguments->target,
                  "Dialect to write: " + listed(dialect_names()) +
                      "; without it a GGUF file becomes ordinary numbers (bf16)")
      ->type_name("NAME");
  return {app, [app, arguments, &globals] {
            check_shared_options("convert", *app, arguments->shared);
            if (is_shared(arguments->shared))
              return run("convert", *arguments, globals, [&](const auto& options) {
                return convert_checkpoint(arguments->input, arguments->output, Dialect::octavo,
                                          options);
              });
            if (arguments->input.empty())
              throw UsageError("[convert] MODEL is required; see octavo convert --help");
            if (arguments->target.empty()) {
              if (!arguments->input.ends_with(".gguf"))
                throw UsageError(text("[convert] got no --target; expected one of ",
                                      listed(dialect_names()),
                                      "; only a .gguf file is converted without one"));
              return run("convert", *arguments, globals, [&](const auto& options) {
                return dequantize_checkpoint(arguments->input, arguments->output, DType::bf16,
                                             options);
              });
            }
            const Dialect target = named_argument("[convert] --target:", arguments->target,
                                                  dialect_names(), parse_dialect);
            return run("convert", *arguments, globals, [&](const auto& options) {
              return convert_checkpoint(arguments->input, arguments->output, target, options);
            });
          }};
}

Command add_dequantize(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, "dequantize",
                     "Turn a quantized checkpoint back into ordinary numbers", kDequantizeExamples);
  auto arguments = std::make_shared<Arguments>();
  add_common(*app, *arguments, true);
  app->add_option("--dtype", arguments->dtype,
                  "Of the weights: " + listed(dequantized_dtype_names()) + " (default bf16)")
      ->type_name("TYPE");
  add_non_finite_option(*app, arguments->non_finite,
                        "Values beyond the type: error (default), or clamp to its largest");
  return {app, [arguments, &globals] {
            const Element element = element_argument("[dequantize] --dtype:", arguments->dtype);
            if (element.is_code() || element.dtype == DType::f64)
              throw UsageError(text("[dequantize] --dtype: got '", cli::shown(arguments->dtype),
                                    "'; expected one of ", listed(dequantized_dtype_names())));
            return run("dequantize", *arguments, globals, [&](const auto& options) {
              return dequantize_checkpoint(arguments->input, arguments->output, element.dtype,
                                           options);
            });
          }};
}

}  // namespace octavo::cli
