// The column of tensor names in a table. Names are whole: layers that differ in a number must be
// told apart, by a person and by a program that reads the table from a pipe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace octavo::cli {

class NameColumn {
 public:
  // `least`: the width at least. `beside`: the width of the rest of a line. On a terminal the
  // column is as wide as the line allows.
  NameColumn(std::size_t least, std::size_t beside);

  // Call for each name before the first row.
  void fit(std::string_view name);
  // A line without its end. A name that is too long for a terminal has a line of its own; elsewhere
  // the rest follows it.
  [[nodiscard]] std::string row(std::string_view before, std::string_view name,
                                std::string_view after) const;

 private:
  std::size_t width_, most_;
  bool wraps_;
};

}  // namespace octavo::cli
