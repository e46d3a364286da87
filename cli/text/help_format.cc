#include "cli/text/help_format.h"

#include <algorithm>

#include "cli/text/formatted.h"

namespace octavo::cli {

std::string help_lines(std::string_view name, std::string_view what) {
  constexpr std::size_t kIndent = 2;
  std::string out = formatted("{:{}}{}", "", kIndent, name);
  std::size_t at = kIndent + name.size();  // where the current line ends
  const auto new_line = [&] {
    out += '\n';
    out.append(kHelpColumn, ' ');
    at = kHelpColumn;
  };
  if (!what.empty() && at >= kHelpColumn) new_line();
  if (!what.empty() && at < kHelpColumn) out.append(kHelpColumn - at, ' ');
  at = kHelpColumn;
  while (!what.empty()) {
    const std::size_t end = std::min(what.find_first_of(" \n"), what.size());
    const std::string_view word = what.substr(0, end);
    const bool ends_line = end < what.size() && what[end] == '\n';
    what.remove_prefix(std::min(end + 1, what.size()));
    const bool is_first = at == kHelpColumn;
    if (!is_first && at + 1 + word.size() > kHelpWidth) {
      new_line();
    } else if (!is_first) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
    if (ends_line && !what.empty()) new_line();
  }
  return out + '\n';
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return help_lines(make_option_name(option, is_positional) + make_option_opts(option),
                    make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return help_lines(command->get_display_name(true), command->get_description());
}

}  // namespace octavo::cli
