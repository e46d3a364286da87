// Shell completion: a description of the command line, and one script generator per shell.
#pragma once

#include <string>
#include <vector>

namespace octavo::cli {

struct CompletedArgument {
  std::string name, description;
  bool takes_value = false, takes_file = false;
  std::vector<std::string> words;  // the values it takes, where they can be listed
};

struct CompletedCommand {
  std::string name, description;
  std::vector<CompletedArgument> options, arguments;
};

std::vector<std::string> completion_shells();

std::string bash_completion(const CompletedCommand& top,
                            const std::vector<CompletedCommand>& commands);
std::string zsh_completion(const CompletedCommand& top,
                           const std::vector<CompletedCommand>& commands);
std::string fish_completion(const CompletedCommand& top,
                            const std::vector<CompletedCommand>& commands);

}  // namespace octavo::cli
