// octavo compare: error metrics between two checkpoints, tensor by tensor.

#include <memory>

#include "cli/checkpoint/checkpoint_text.h"
#include "cli/checkpoint/checkpoint_watch.h"
#include "cli/checkpoint/gate_argument.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/names.h"
#include "cli/text/output_name.h"
#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/thread_pool.h"
#include "octavo/pipeline/compare_checkpoints.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo compare model/ out/                               what quantizing changed
  octavo compare out-mxfp8/ out-nvfp4/ --report diff.html
  octavo compare model/ out/ --fail-if 'cosine<0.999'

Errors are those of B against A. Either may be quantized, in any dialect that octavo reads.)";

struct Arguments {
  std::string a, b, report;
  std::vector<std::string> gates;
  int threads = 0;
};

int run_compare(const Arguments& arguments, const Globals& globals) {
  const std::vector<Gate> gates = gate_arguments("compare", arguments.gates);
  if (!arguments.report.empty()) {
    check_ending("compare", "--report", arguments.report, ".html");
    const WholeFile could_be_written("compare", output_name("compare", arguments.report));
  }
  for (const std::string& path : {arguments.a, arguments.b}) check_model("compare", path);
  CheckpointReport report;
  bool done = false;
  {
    CheckpointWatch watch("compare");
    try {
      report =
          compare_checkpoints(arguments.a, arguments.b,
                              {.threads = arguments.threads, .on_progress = watch.on_progress()});
      done = true;
    } catch (const Error&) {
      if (!CheckpointWatch::interrupted()) throw;
    }
  }
  if (!done) CheckpointWatch::die();
  if (!arguments.report.empty()) {
    write_whole_file("compare", arguments.report, html_of(report));
    say(formatted("wrote {}", octavo::shown(arguments.report, 400)));
  }
  if (globals.json) {
    write_json(report, {}, [](std::string_view text) { print(text); });
    print("\n");
  } else {
    print(summary_text(report));
  }
  return misses_gates("compare", report, gates) ? kGateMissed : kGood;
}

}  // namespace

Command add_compare(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(program, globals, "compare",
                                 "Show how far two checkpoints are apart", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("A", arguments->a, "A folder, a .safetensors or a .gguf file")
      ->required()
      ->type_name("");
  app->add_option("B", arguments->b, "Another, quantized or not")->required()->type_name("");
  app->add_option("--report", arguments->report, "Also write a page (HTML) about every tensor")
      ->type_name("FILE");
  app->add_option("--fail-if", arguments->gates,
                  "The exit code is 3 if this holds for a tensor, such as 'cosine<0.999'; of " +
                      listed(gate_metric_names()) + "; may be repeated")
      ->type_name("LIMIT")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--threads", arguments->threads,
                  "Maximum number of threads (default 0: every core, or OCTAVO_THREADS)")
      ->type_name("N")
      ->check(CLI::Range(0, kMaxThreads).description(""));
  return {app, [arguments, &globals] { return run_compare(*arguments, globals); }};
}

}  // namespace octavo::cli
