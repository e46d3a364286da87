// octavo calibrate: statistics of a model's activations on a text.

#include <nlohmann/json.hpp>

#include <memory>

#include "cli/checkpoint/checkpoint_text.h"
#include "cli/checkpoint/checkpoint_watch.h"
#include "cli/command.h"
#include "cli/model/text_arguments.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/json_text.h"
#include "cli/text/number_text.h"
#include "cli/text/output_name.h"
#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/model/eval/calibrate.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo calibrate model/ --text wiki.txt -o stats.safetensors
  octavo calibrate model/ --text wiki.txt -o stats.safetensors --hessians 'full:mlp\.down_proj'
  octavo calibrate model/ --text wiki.txt -o stats.safetensors --hessians none --tokens 4096

Of every Linear's input: amax, E[x^2] and Hessians; amax of K and V; tokens seen by each expert.)";

struct Arguments {
  std::string model, output, resume, hessians = "block16";
  TextArguments text;
};

void take_hessians(const std::string& typed, CalibrateOptions& options) {
  constexpr std::string_view kFull = "full:";
  if (typed == "block16") return;
  if (typed == "none") {
    options.block_hessians = false;
  } else if (typed.starts_with(kFull) && typed.size() > kFull.size()) {
    options.full_hessians = typed.substr(kFull.size());
  } else {
    throw UsageError(text("[calibrate] --hessians: got '", octavo::shown(typed),
                          "'; expected block16, none, or full:EXPRESSION, such as "
                          "'full:mlp\\.down_proj'"));
  }
}

void print_summary(const ModelStatistics& seen, const Arguments& arguments, bool as_json) {
  std::size_t full = 0;
  for (const ModuleStatistics& one : seen.modules) full += one.hessian.empty() ? 0 : 1;
  if (as_json) {
    print(json_text(nlohmann::ordered_json{{"output", arguments.output},
                                           {"model", arguments.model},
                                           {"tokens", seen.origin.tokens},
                                           {"modules", seen.modules.size()},
                                           {"full_hessians", full},
                                           {"attentions", seen.caches.size()},
                                           {"routers", seen.routings.size()},
                                           {"notes", seen.notes}}));
    return;
  }
  print(formatted("{} tokens through {}", grouped(seen.origin.tokens),
                  grouped(static_cast<std::int64_t>(seen.modules.size()), "linear layer")));
  if (full > 0) print(formatted(", {} with the Hessian of all channels", full));
  print("\n" + notes_text(seen.notes));
}

int run_calibrate(const Arguments& arguments, const Globals& globals) {
  check_model("calibrate", arguments.model);
  check_ending("calibrate", "-o", arguments.output, ".safetensors");
  { const WholeFile could_be_written("calibrate", output_name("calibrate", arguments.output)); }
  CalibrateOptions options{.window = arguments.text.window,
                           .tokens = arguments.text.tokens,
                           .temporary = arguments.text.temporary,
                           .resume = arguments.resume,
                           .keep_state = true,
                           .threads = arguments.text.threads};
  take_hessians(arguments.hessians, options);
  options.texts = read_texts("calibrate", arguments.text);
  options.max_memory = max_memory_of("calibrate", arguments.text, options.max_memory);
  ModelStatistics seen;
  bool done = false;
  {
    CheckpointWatch watch("calibrate");
    options.on_progress = watch.on_progress();
    try {
      seen = calibrate(arguments.model, options);
      done = true;
    } catch (const Error&) {
      if (!CheckpointWatch::interrupted()) throw;
    }
  }
  if (!done) CheckpointWatch::die();
  write_statistics(arguments.output, seen);
  if (!arguments.resume.empty()) remove_calibration_state(arguments.resume);
  say(formatted("wrote {}", octavo::shown(arguments.output, 400)));
  print_summary(seen, arguments, globals.json);
  return kGood;
}

}  // namespace

Command add_calibrate(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, "calibrate",
                     "Collect statistics of a model's activations on a text", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("MODEL", arguments->model, "A folder, a .safetensors or a .gguf file")
      ->required()
      ->type_name("");
  app->add_option("-o,--output", arguments->output, "Where to write them (.safetensors)")
      ->required()
      ->type_name("FILE");
  app->add_option("--hessians", arguments->hessians,
                  "block16 (default): E[x x^T] of 16 neighbouring channels; none; full:EXPRESSION: "
                  "that of all channels, too, of modules whose name it is found in")
      ->type_name("WHICH");
  add_text_options(*app, arguments->text);
  app->add_option("--resume", arguments->resume,
                  "Keep the state after each layer in a folder, and go on from it")
      ->type_name("FOLDER");
  return {app, [arguments, &globals] { return run_calibrate(*arguments, globals); }};
}

}  // namespace octavo::cli
