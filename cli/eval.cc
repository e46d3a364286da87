// octavo eval: perplexity of models, and how far they are from an original.

#include <exception>
#include <memory>

#include "cli/checkpoint/checkpoint_watch.h"
#include "cli/command.h"
#include "cli/model/activations.h"
#include "cli/model/evaluation_text.h"
#include "cli/model/text_arguments.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/output_name.h"
#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/model/eval/evaluate.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo eval model/ --text wiki.txt                       perplexity
  octavo eval out/ --against model/ --text wiki.txt        and what quantizing did to the answers
  octavo eval a/ b/ --against model/ --text wiki.txt --report eval.html
  octavo eval big/ --text wiki.txt --max-memory 1GiB --resume state/

A model is walked layer by layer, with one layer's weights in memory at a time.)";

struct Arguments {
  std::vector<std::string> models;
  std::string against, report, resume, activations;
  TextArguments text;
};

// The result of hours: it is printed where the page cannot be written, too, and the state goes only
// when both are where they belong.
void give(const ModelEvaluation& seen, const Arguments& arguments, const Globals& globals) {
  std::exception_ptr failed;
  if (!arguments.report.empty()) {
    try {
      write_whole_file("eval", arguments.report, html_of(seen));
      say(formatted("wrote {}", octavo::shown(arguments.report, 400)));
    } catch (const Error&) {
      failed = std::current_exception();
    }
  }
  print(globals.json ? json_of(seen) + "\n" : evaluation_text(seen));
  finish_stdout();
  if (failed) std::rethrow_exception(failed);
}

int run_eval(const Arguments& arguments, const Globals& globals) {
  for (const std::string& model : arguments.models) check_model("eval", model);
  if (!arguments.against.empty()) check_model("eval", arguments.against);
  if (!arguments.report.empty()) {
    check_ending("eval", "--report", arguments.report, ".html");
    const WholeFile could_be_written("eval", output_name("eval", arguments.report));
  }
  EvaluateOptions options{.against = arguments.against,
                          .texts = read_texts("eval", arguments.text),
                          .window = arguments.text.window,
                          .tokens = arguments.text.tokens,
                          .activations = activations_of("eval", arguments.activations),
                          .temporary = arguments.text.temporary,
                          .resume = arguments.resume,
                          .keep_state = true,
                          .threads = arguments.text.threads};
  options.max_memory = max_memory_of("eval", arguments.text, options.max_memory);
  ModelEvaluation seen;
  bool done = false;
  {
    CheckpointWatch watch("eval");
    options.on_progress = watch.on_progress();
    try {
      seen = evaluate(arguments.models, options);
      done = true;
    } catch (const Error&) {
      if (!CheckpointWatch::interrupted()) throw;
    }
  }
  if (!done) CheckpointWatch::die();
  give(seen, arguments, globals);
  if (!arguments.resume.empty()) remove_evaluation_state(arguments.resume);
  return kGood;
}

}  // namespace

Command add_eval(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, "eval",
                     "Run models on a text: perplexity, and KL to an original", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("MODEL", arguments->models,
                  "Folders, .safetensors or .gguf files, quantized or not")
      ->required()
      ->type_name("");
  app->add_option("--against", arguments->against,
                  "The original: adds KL, top-1 agreement and hidden states layer by layer")
      ->type_name("MODEL");
  add_text_options(*app, arguments->text);
  add_activations_option(*app, arguments->activations);
  app->add_option("--report", arguments->report, "Also write a page (HTML)")->type_name("FILE");
  app->add_option("--resume", arguments->resume,
                  "Keep the state after each layer in a folder, and go on from it")
      ->type_name("FOLDER");
  return {app, [arguments, &globals] { return run_eval(*arguments, globals); }};
}

}  // namespace octavo::cli
