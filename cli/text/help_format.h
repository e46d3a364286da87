// How help is laid out: names in a column of their own, descriptions wrapped at 100 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace octavo::cli {

inline constexpr std::size_t kHelpWidth = 100, kHelpColumn = 32;

// `what` from kHelpColumn on, in lines of at most kHelpWidth, after `name`; a name that reaches
// into that column has a line of its own. A word longer than a line is not broken.
std::string help_lines(std::string_view name, std::string_view what);

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace octavo::cli
