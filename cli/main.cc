// The octavo program: declares the subcommands, parses, runs one, and turns every error into a line
// on stderr and an exit code.

#include <algorithm>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/help_format.h"
#include "cli/text/input_name.h"
#include "cli/text/option_words.h"
#include "cli/text/suggest.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/version.h"

namespace octavo::cli {
namespace {

constexpr const char* kDescription =
    "octavo: numbers of eight bits and fewer, bit-exact on any CPU.";
constexpr const char* kExamples = R"(Examples:
  octavo quantize model/ -o out/ --recipe mxfp8     a checkpoint that servers load
  octavo verify out/                                will they?
  octavo compare model/ out/ --report diff.html     what became of each tensor
  octavo eval out/ --against model/ --text a.txt    what it did to the answers
  octavo plan model/ -o plan.json --recipe nvfp4    for many processes, each with its share
  octavo inspect model/ --tree                      what is in a checkpoint
  octavo generate model/ --prompt "Once upon"       text from a model, quantized or not
  octavo formats                                    what the formats can hold
  octavo formats e4m3fn --plot e4m3fn.svg           a picture of one number line
  octavo cast x.npy codes.npy --to e4m3fn           floats to FP8 codes, and what was lost
  octavo quantize x.npy --recipe mxfp8              with scales: error by tensor, row and tile
  octavo attention-report --html attention.html     what FP8 attention loses, step by step
  octavo doctor                                     which kernels run here, and why

octavo COMMAND --help says more about each. Data goes to stdout, messages to stderr.
Exit codes: 0 good, 1 failed, 2 wrong usage, 3 a quality limit that you set was missed.)";

std::vector<std::string> command_names(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.app->get_name());
  return names;
}

// Checked before parsing, because the parser would only report an unexpected argument.
void check_command_name(int argc, char** argv, const std::vector<std::string>& names) {
  const char* const* end = argv + argc;
  const char* const* first =
      std::find_if(argv + 1, argv + argc, [](const char* word) { return word[0] != '-'; });
  if (first == end || std::find(names.begin(), names.end(), *first) != names.end()) return;
  throw UsageError(text("[octavo] got '", shown(*first), "'; expected one of ", joined(names, ", "),
                        ".", did_you_mean(*first, names)));
}

// Opens the models that were given: a mistyped path, or a file that is no model, is the real
// trouble, whatever else the command lacks. Throws Error.
void check_models(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_positional() ? option->get_name(true) : "";
    if (name != "MODEL" && name != "A") continue;
    for (const std::string& path : option->results()) {
      check_model(app.get_name(), path);
      (void)CheckpointReader(path);
    }
  }
}

// Rewords the parser's error. An unknown option is reported first: it may be the missing one,
// mistyped.
UsageError explained(const CLI::App& program, const CLI::ParseError& error) {
  const auto chosen = program.get_subcommands();
  const CLI::App& app = chosen.empty() ? program : *chosen[0];
  const std::string op = chosen.empty() ? "octavo" : app.get_name();
  const std::string see = chosen.empty() ? "octavo --help" : text("octavo ", op, " --help");
  const std::vector<std::string> extra = program.remaining(true);
  const auto unknown = std::find_if(
      extra.begin(), extra.end(), [](const std::string& word) { return word.rfind('-', 0) == 0; });
  if (unknown != extra.end()) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      names.push_back(option->get_name(false, false));
    return UsageError(text('[', op, "] got an unknown option '", shown(*unknown), "'.",
                           did_you_mean(*unknown, names), " See ", see));
  }
  if (!extra.empty())
    return UsageError(
        text('[', op, "] got one argument too many, '", shown(extra[0]), "'. See ", see));
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) check_models(app);
  return UsageError(text('[', op, "] ", error.what(), "; see ", see));
}

int parse_and_run(int argc, char** argv) {
  CLI::App program(kDescription, "octavo");
  program.footer(kExamples);
  program.require_subcommand(0, 1);
  program.formatter(std::make_shared<HelpFormatter>());
  Globals globals;
  bool version_asked = false;
  program.add_flag("--version", version_asked, "Print the version");
  program.add_flag("--json", globals.json, "Write data as JSON");
  const std::vector<Command> commands{
      add_formats(program, globals),    add_cast(program, globals),
      add_quantize(program, globals),   add_plan(program, globals),
      add_verify(program, globals),     add_convert(program, globals),
      add_dequantize(program, globals), add_compare(program, globals),
      add_conform(program, globals),    add_inspect(program, globals),
      add_generate(program, globals),   add_eval(program, globals),
      add_calibrate(program, globals),  add_attention_report(program, globals),
      add_doctor(program, globals),     add_completion(program, globals),
  };
  check_command_name(argc, argv, command_names(commands));
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(program.help());
    return kGood;
  } catch (const CLI::ParseError& error) {
    throw explained(program, error);
  }
  if (version_asked) {
    print(globals.json ? nlohmann::json{{"version", version()}}.dump() + "\n"
                       : formatted("octavo {}\n", version()));
    return kGood;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  std::fputs(program.help().c_str(), stderr);
  return kUsage;
}

}  // namespace

CLI::App* add_subcommand(CLI::App& program, Globals& globals, const std::string& name,
                         const std::string& description, const std::string& examples) {
  CLI::App* app = program.add_subcommand(name, description);
  app->footer(examples);
  app->add_flag("--json", globals.json, "Write data as JSON");
  return app;
}

int run_program(int argc, char** argv) {
  prepare_signals();
  int exit_code = kFailed;
  std::string message;
  try {
    exit_code = parse_and_run(argc, argv);
    finish_stdout();
    return exit_code;
  } catch (const UsageError& error) {
    exit_code = kUsage;
    message = error.what();
  } catch (const Error& error) {
    message = with_flags(error.what());
  } catch (const std::bad_alloc&) {
    message = "[octavo] out of memory; free some, or use fewer --threads";
  } catch (const std::exception& error) {
    message = text("[octavo] ", error.what());
  }
  say(Style(stderr).bad("octavo:") + " " + message);
  return exit_code == kUsage ? kUsage : kFailed;
}

}  // namespace octavo::cli

int main(int argc, char** argv) { return octavo::cli::run_program(argc, argv); }
