// One side of the comparison of regular expressions, for run.py. All match at the beginning of the
// text, as Python's re.match does.
//   bench_pattern names   SIDE EXPRESSIONS NAMES REPEATS   lines of files: every one on every name
//   bench_pattern verdicts SIDE < LINES                    lines of JSON: [expression, text, ...]
// prints for each expression null (refused) or a list of booleans, one per text.
// SIDE: octavo, re2, std.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>

#ifdef OCTAVO_BENCH_RE2
#include <re2/re2.h>
#endif

#include "bench/json/process_cost.h"
#include "octavo/base/pattern/pattern.h"

namespace {

using Matcher = std::function<bool(const std::string&)>;

// Throws where the side refuses the expression.
Matcher compiled(const std::string& side, const std::string& expression) {
  if (side == "octavo")
    return [pattern = octavo::Pattern(expression)](const std::string& text) {
      return pattern.begins(text);
    };
  if (side == "std")
    return [pattern = std::regex(expression)](const std::string& text) {
      return std::regex_search(text, pattern, std::regex_constants::match_continuous);
    };
#ifdef OCTAVO_BENCH_RE2
  if (side == "re2") {
    const auto pattern = std::make_shared<RE2>(expression, RE2::Quiet);
    if (!pattern->ok()) throw std::runtime_error(pattern->error());
    return [pattern](const std::string& text) {
      return pattern->Match(text, 0, text.size(), RE2::ANCHOR_START, nullptr, 0);
    };
  }
#endif
  std::fprintf(stderr, "no side '%s' here\n", side.c_str());
  std::exit(3);
}

std::vector<std::string> lines_of(const char* path) {
  std::istringstream all(bench::contents_of(path));
  std::vector<std::string> out;
  for (std::string line; std::getline(all, line);) out.push_back(line);
  return out;
}

void verdicts(const std::string& side) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto input = nlohmann::json::parse(line).get<std::vector<std::string>>();
    std::optional<Matcher> matcher;
    try {
      matcher = compiled(side, input.at(0));
    } catch (const std::exception&) {
    }
    nlohmann::json out;
    for (std::size_t i = 1; matcher && i < input.size(); ++i) {
      try {
        out.push_back((*matcher)(input[i]));
      } catch (const std::exception&) {  // std::regex gives up while it matches
        out.push_back(nullptr);
      }
    }
    std::printf("%s\n", out.dump().c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string work = argc > 2 ? argv[1] : "";
  if (work == "verdicts") {
    verdicts(argv[2]);
    return 0;
  }
  if (work != "names" || argc < 6) {
    std::fprintf(stderr, "usage: bench_pattern names|verdicts SIDE [EXPRESSIONS NAMES REPEATS]\n");
    return 2;
  }
  const std::string side = argv[2];
  const std::vector<std::string> expressions = lines_of(argv[3]), names = lines_of(argv[4]);
  bench::print_cost(std::atoi(argv[5]), [&] {
    long found = 0;
    for (const std::string& expression : expressions) {
      const Matcher matcher = compiled(side, expression);
      for (const std::string& name : names) found += matcher(name) ? 1 : 0;
    }
    return found;
  });
  return 0;
}
