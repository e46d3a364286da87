// octavo completion: prints a shell completion script. Subcommands and options are taken from the
// parser itself, so the script is always up to date.

#include <map>
#include <memory>

#include "cli/checkpoint/quantize_checkpoint_options.h"
#include "cli/command.h"
#include "cli/tensor/quantize_plan.h"
#include "cli/terminal/completion.h"
#include "cli/terminal/terminal.h"
#include "cli/text/names.h"
#include "cli/text/suggest.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/checkpoint/verify/verify.h"
#include "octavo/round/policy_names.h"
#include "octavo/round/profile.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"help(Examples:
  eval "$(octavo completion bash)"                       in ~/.bashrc
  eval "$(octavo completion zsh)"                        in ~/.zshrc, after compinit
  octavo completion fish > ~/.config/fish/completions/octavo.fish)help";

using Words = std::vector<std::string>;

// ".*=" with each preset: the user narrows the expression before the sign.
Words recipe_for_names() {
  Words words;
  for (const std::string& name : preset_names()) words.push_back(".*=" + name);
  words.emplace_back(".*=none");
  return words;
}

// Of arrays and of checkpoints.
Words all_non_finite_names() {
  Words words = non_finite_names();
  for (const std::string& name : clamp_names()) words.push_back(name);
  return words;
}

// The values of an argument; an argument that is not listed takes a file or a number.
Words words_for(const std::string& command, const std::string& argument) {
  static const std::map<std::string, Words (*)()> kKnown{{"--to", element_names},
                                                         {"--from", element_names},
                                                         {"--rounding", rounding_names},
                                                         {"--overflow", overflow_names},
                                                         {"--nan", nan_input_names},
                                                         {"--profile", profile_names},
                                                         {"NAME", format_names},
                                                         {"SHELL", completion_shells},
                                                         {"--recipe", preset_names},
                                                         {"--compare", preset_names},
                                                         {"--recipe-for", recipe_for_names},
                                                         {"--format", format_names},
                                                         {"--tile", tile_names},
                                                         {"--scale", scale_format_names},
                                                         {"--scale-rule", scale_rule_names},
                                                         {"--scale-policy", scale_policy_names},
                                                         {"--arith", arith_names},
                                                         {"--non-finite", all_non_finite_names},
                                                         {"--target", dialect_names},
                                                         {"--scale-rounding", scale_rounding_names},
                                                         {"--input-scales", static_scale_names},
                                                         {"--kv-scales", static_scale_names},
                                                         {"--for", loader_names},
                                                         {"--dtype", dequantized_dtype_names}};
  if (argument == "--non-finite" && (command == "dequantize" || command == "plan"))
    return clamp_names();
  const auto found = kKnown.find(argument);
  return found == kKnown.end() ? Words{} : found->second();
}

CompletedCommand describe(const CLI::App& app) {
  CompletedCommand command{
      .name = app.get_name(), .description = app.get_description(), .options = {}, .arguments = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // not in --help either
    const bool positional = option->get_positional();
    const std::string name = positional ? option->get_name(true) : option->get_name(false, false);
    const Words words = words_for(command.name, name);
    CompletedArgument argument{
        .name = name,
        .description = option->get_description(),
        .takes_value = option->get_items_expected_max() > 0,
        .takes_file = option->get_type_name() == "FILE" || (positional && words.empty()),
        .words = words};
    (positional ? command.arguments : command.options).push_back(std::move(argument));
  }
  return command;
}

int run_completion(const CLI::App& program, const std::string& shell) {
  std::vector<CompletedCommand> commands;
  for (const CLI::App* app : program.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(describe(*app));
  const CompletedCommand top = describe(program);
  if (shell == "bash") {
    print(bash_completion(top, commands));
  } else if (shell == "zsh") {
    print(zsh_completion(top, commands));
  } else if (shell == "fish") {
    print(fish_completion(top, commands));
  } else {
    throw UsageError(text("[completion] got '", shown(shell), "'; expected bash, zsh or fish.",
                          did_you_mean(shell, completion_shells())));
  }
  return kGood;
}

}  // namespace

std::vector<std::string> completion_shells() { return {"bash", "zsh", "fish"}; }

Command add_completion(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(program, globals, "completion",
                                 "Print a completion script for bash, zsh or fish", kExamples);
  // Parsed, so that it can be refused with a reason, but not offered.
  app->get_option("--json")->group("");
  auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "bash, zsh or fish")->required()->type_name("");
  return {
      app, [&program, &globals, shell] {
        if (globals.json) {
          throw UsageError(
              "[completion] got --json, but the data is a script for a shell; leave out --json");
        }
        return run_completion(program, *shell);
      }};
}

}  // namespace octavo::cli
