// Properties of a format (limits, number of codes, NaN codes), computed from every one of its
// codes; used by tables, JSON and plots.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/format/format.h"

namespace octavo::cli {

enum class CodeClass : std::uint8_t { zero, subnormal, normal, inf, nan };
std::string_view name_of(CodeClass code_class);
CodeClass class_of(const Format& format, std::uint32_t code);

// "0x3f", two digits for formats of up to eight bits and four beyond.
std::string hex_of(const Format& format, std::uint32_t code);

// Sign, exponent and mantissa apart: "0|0111|100".
std::string bits_of(const Format& format, std::uint32_t code);
std::string bits_heading(const Format& format);  // "s|exp.|man", of the same width

struct FormatFacts {
  Format format{};
  std::string name, note;
  double max = 0, lowest = 0, min_normal = 0, min_positive = 0, epsilon = 0;
  std::int64_t codes = 0, finite_codes = 0;
  std::int64_t finite_values = 0;       // -0 and 0 are one value
  std::int64_t subnormals = 0;          // codes of both signs
  std::vector<std::string> nan_ranges;  // "0x7f", "0x7d-0x7f"
  double median_magnitude = 0;          // half of all finite codes lie in [-m, m]
};

FormatFacts facts_of(const Format& format);
nlohmann::ordered_json json_of(const FormatFacts& facts);

}  // namespace octavo::cli
