
#include "cli/terminal/completion.h"
#include "cli/text/formatted.h"

namespace octavo::cli {
namespace {

std::string spaced(const std::vector<std::string>& words) { return joined(words, " "); }

std::string option_names(const CompletedCommand& command) {
  std::vector<std::string> names;
  for (const CompletedArgument& option : command.options) names.push_back(option.name);
  return spaced(names);
}

// Text within single quotes, as all three shells read it.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return "'" + out + "'";
}

// zsh reads brackets and colons in descriptions.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_argument(const CompletedArgument& argument, bool positional) {
  std::string spec =
      positional ? "" : formatted("{}[{}]", argument.name, zsh_text(argument.description));
  if (!positional && !argument.takes_value) return cli::quoted(spec);
  const std::string values = !argument.words.empty() ? "(" + spaced(argument.words) + ")"
                             : argument.takes_file   ? "_files"
                                                     : " ";
  return cli::quoted(spec + ":" + zsh_text(positional ? argument.description : argument.name) +
                     ":" + values);
}

}  // namespace

// Nothing offered (COMPREPLY empty) means file names, by -o default.
std::string bash_completion(const CompletedCommand& top,
                            const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> names;
  std::string values, options, arguments;
  for (const CompletedCommand& command : commands) {
    names.push_back(command.name);
    for (const CompletedArgument& option : command.options) {
      if (!option.takes_value) continue;
      values += formatted("    \"{} {}\") words=\"{}\"; known=1 ;;\n", command.name, option.name,
                          spaced(option.words));
    }
    options += formatted("      {}) words=\"{}\" ;;\n", command.name, option_names(command));
    if (!command.arguments.empty() && !command.arguments[0].words.empty()) {
      arguments += formatted("      {}) words=\"{}\" ;;\n", command.name,
                             spaced(command.arguments[0].words));
    }
  }
  return formatted(R"sh(# octavo completion for bash: eval "$(octavo completion bash)"
_octavo() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" command="" words="" known="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in
      -*) ;;
      *) command="$word"; break ;;
    esac
  done
  COMPREPLY=()
  case "$command $prev" in
{values}  esac
  if [[ -z "$known" && "$cur" == -* ]]; then
    case "$command" in
      "") words="{top}" ;;
{options}    esac
  elif [[ -z "$known" ]]; then
    case "$command" in
      "") words="{names}" ;;
{arguments}    esac
  fi
  [[ -n "$words" ]] && COMPREPLY=($(compgen -W "$words" -- "$cur"))
  return 0
}}
complete -o default -F _octavo octavo
)sh",
                   fmt::arg("values", values), fmt::arg("options", options),
                   fmt::arg("arguments", arguments), fmt::arg("top", option_names(top)),
                   fmt::arg("names", spaced(names)));
}

std::string zsh_completion(const CompletedCommand& top,
                           const std::vector<CompletedCommand>& commands) {
  std::string names, cases;
  for (const CompletedCommand& command : commands) {
    names += formatted("    {}\n", cli::quoted(command.name + ":" + zsh_text(command.description)));
    cases += formatted("    {})\n      _arguments -s", command.name);
    for (const CompletedArgument& option : command.options)
      cases += " \\\n        " + zsh_argument(option, false);
    for (const CompletedArgument& argument : command.arguments)
      cases += " \\\n        " + zsh_argument(argument, true);
    cases += "\n      ;;\n";
  }
  std::string top_options;
  for (const CompletedArgument& option : top.options)
    top_options += " " + zsh_argument(option, false);
  return formatted(R"sh(#compdef octavo
# octavo completion for zsh: eval "$(octavo completion zsh)" after compinit
_octavo() {{
  local -a commands
  commands=(
{names}  )
  if (( CURRENT == 2 )); then
    if [[ "$words[2]" == -* ]]; then
      _arguments{top}
    else
      _describe 'command' commands
    fi
    return
  fi
  local command="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$command" in
{cases}  esac
}}
if [[ "$funcstack[1]" == "_octavo" ]]; then
  _octavo "$@"
else
  compdef _octavo octavo
fi
)sh",
                   fmt::arg("names", names), fmt::arg("cases", cases),
                   fmt::arg("top", top_options));
}

std::string fish_completion(const CompletedCommand& top,
                            const std::vector<CompletedCommand>& commands) {
  std::string out =
      "# octavo completion for fish: octavo completion fish > "
      "~/.config/fish/completions/octavo.fish\n"
      "complete -c octavo -f\n";
  for (const CompletedArgument& option : top.options) {
    out += formatted("complete -c octavo -n __fish_use_subcommand -l {} -d {}\n",
                     option.name.substr(2), cli::quoted(option.description));
  }
  for (const CompletedCommand& command : commands) {
    out += formatted("complete -c octavo -n __fish_use_subcommand -a {} -d {}\n", command.name,
                     cli::quoted(command.description));
    const std::string seen =
        formatted("complete -c octavo -n '__fish_seen_subcommand_from {}'", command.name);
    for (const CompletedArgument& option : command.options) {
      out +=
          formatted("{} -l {} -d {}", seen, option.name.substr(2), cli::quoted(option.description));
      if (option.takes_value)
        out += option.takes_file ? " -r -F"
                                 : formatted(" -x -a {}", cli::quoted(spaced(option.words)));
      out += "\n";
    }
    for (const CompletedArgument& argument : command.arguments) {
      out += argument.takes_file
                 ? seen + " -F\n"
                 : formatted("{} -a {}\n", seen, cli::quoted(spaced(argument.words)));
    }
  }
  return out;
}

}  // namespace octavo::cli
