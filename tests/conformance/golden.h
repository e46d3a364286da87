// Reads golden vectors: lines of five columns parted by tabs, `#` begins a comment.
//   format   policy   source   input or first-last (hex bits)   code (hex)
// The policy is a list of profiles ("torch,cuda") or "rounding:overflow[:nan_input]". Stochastic
// rounding with given draws is "stochastic/bits/draw:overflow"; only the scalar encoder can be
// given draws.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"
#include "octavo/round/profile.h"
#include "octavo/tensor/dtype.h"

namespace golden {

struct Row {
  std::string file;
  int line = 0;
  std::string format, policy, source;
  std::uint64_t first = 0, last = 0;
  std::uint32_t code = 0;
};

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
Number number(std::string_view digits, int base) {
  Number value{};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    throw std::runtime_error("not a number: " + std::string(digits));
  }
  return value;
}

// The lines of a table, without comments, cut into columns. Throws when the file is missing or
// empty, so that a lost file cannot pass for a test.
struct Line {
  int number = 0;
  std::vector<std::string> columns;
};
inline std::vector<Line> read_lines(const std::string& path) {
  std::ifstream in(path);
  std::vector<Line> lines;
  std::string text;
  for (int at = 1; std::getline(in, text); ++at) {
    text = text.substr(0, text.find('#'));
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
      text.pop_back();
    if (!text.empty()) lines.push_back({at, split(text, '\t')});
  }
  if (lines.empty()) throw std::runtime_error("no vectors in " + path);
  return lines;
}

inline std::vector<Row> read_rows(const std::string& path) {
  std::vector<Row> rows;
  for (const Line& line : read_lines(path)) {
    if (line.columns.size() != 5)
      throw std::runtime_error(path + ":" + std::to_string(line.number) + ": expected 5 columns");
    const std::vector<std::string> ends = split(line.columns[3], '-');
    rows.push_back({path.substr(path.rfind('/') + 1), line.number, line.columns[0], line.columns[1],
                    line.columns[2], number<std::uint64_t>(ends.front(), 16),
                    number<std::uint64_t>(ends.back(), 16),
                    number<std::uint32_t>(line.columns[4], 16)});
  }
  return rows;
}

// One choice of policy out of a row's policy column, and the draw of stochastic rounding.
struct Choice {
  octavo::EncodePolicy policy;
  std::uint32_t draw = 0;
};

inline Choice choice_of(const std::string& name, const octavo::Format& format) {
  if (name.find(':') == std::string::npos)
    return {octavo::profile_policy(octavo::parse_profile(name), format)};
  const std::vector<std::string> parts = split(name, ':');
  const std::vector<std::string> rounding = split(parts[0], '/');
  Choice choice;
  choice.policy.rounding = octavo::parse_rounding(rounding[0]);
  if (rounding.size() == 3) {
    choice.policy.stochastic_bits = number<int>(rounding[1], 10);
    choice.draw = number<std::uint32_t>(rounding[2], 10);
  }
  choice.policy.overflow = octavo::parse_overflow(parts[1]);
  if (parts.size() > 2) choice.policy.nan_input = octavo::parse_nan_input(parts[2]);
  return choice;
}

// Inputs of a row to try: all of a 16-bit range; of a wider one the ends (where the code changes),
// their inner neighbours and some points between.
inline std::vector<std::uint64_t> inputs_of(const Row& row) {
  std::vector<std::uint64_t> inputs;
  const std::uint64_t width = row.last - row.first;
  if (width <= 0xFFFF && (row.source == "bf16" || row.source == "f16")) {
    for (std::uint64_t i = 0; i <= width; ++i) inputs.push_back(row.first + i);
    return inputs;
  }
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{1}, width / 3, width / 2, width - 1, width}) {
    if (offset <= width)
      inputs.push_back(row.first + offset);  // width - 1 wraps for a single input
  }
  std::sort(inputs.begin(), inputs.end());
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  return inputs;
}

}  // namespace golden
