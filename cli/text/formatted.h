// fmt's format strings, checked as they are compiled. fmt is in the program as headers alone, and
// whatever calls fmt::format compiles all of it again: 5 seconds for each file. Here one file does.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace octavo::cli {

std::string formatted_args(fmt::string_view text, fmt::format_args args);

template <typename... Args>
std::string formatted(fmt::format_string<Args...> text, Args&&... args) {
  return formatted_args(text, fmt::make_format_args(args...));
}

// Words with something between them.
template <typename Words>
std::string joined(const Words& words, std::string_view between) {
  std::string all;
  for (const auto& word : words) {
    if (!all.empty()) all += between;
    all += word;
  }
  return all;
}

}  // namespace octavo::cli
