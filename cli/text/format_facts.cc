#include "cli/text/format_facts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/text/formatted.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"

namespace octavo::cli {
namespace {

std::string binary(std::uint32_t value, int width) {
  return width > 0 ? formatted("{:0{}b}", value, width) : "";
}

std::string join_fields(std::initializer_list<std::string> fields) {
  std::string out;
  for (const std::string& field : fields) {
    if (!field.empty()) out += (out.empty() ? "" : "|") + field;
  }
  return out;
}

// A field's name cut or dotted to its width: "exp" in five bits is "exp..".
std::string heading(std::string_view name, int width) {
  std::string out(name.substr(0, static_cast<std::size_t>(width)));
  out.resize(static_cast<std::size_t>(width), '.');
  return out;
}

std::vector<std::string> nan_ranges(const Format& format) {
  std::vector<std::string> ranges;
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
    if (!is_nan(format, code)) continue;
    std::uint32_t last = code;
    while (last < format.code_mask() && is_nan(format, last + 1)) ++last;
    ranges.push_back(hex_of(format, code) + (last > code ? "-" + hex_of(format, last) : ""));
    code = last;
  }
  return ranges;
}

std::string_view nan_kind(Nan nan) {
  switch (nan) {
    case Nan::none:
      return "none";
    case Nan::ieee:
      return "ieee";
    case Nan::all_ones:
      return "all_ones";
    case Nan::negative_zero:
      return "negative_zero";
  }
  return "";
}

}  // namespace

std::string_view name_of(CodeClass code_class) {
  constexpr std::string_view kNames[] = {"zero", "subnormal", "normal", "inf", "nan"};
  return kNames[static_cast<std::size_t>(code_class)];
}

CodeClass class_of(const Format& format, std::uint32_t code) {
  if (is_nan(format, code)) return CodeClass::nan;
  if (is_inf(format, code)) return CodeClass::inf;
  const double magnitude = std::fabs(decode(format, code));
  if (magnitude == 0) return CodeClass::zero;
  return magnitude < min_normal(format) ? CodeClass::subnormal : CodeClass::normal;
}

std::string hex_of(const Format& format, std::uint32_t code) {
  return formatted("0x{:0{}x}", code, format.bits() <= 8 ? 2 : 4);
}

std::string bits_of(const Format& format, std::uint32_t code) {
  const std::uint32_t field = code & format.magnitude_mask();
  return join_fields({format.is_signed ? binary((code & format.sign_mask()) != 0, 1) : "",
                      binary(field >> format.mantissa_bits, format.exponent_bits),
                      binary(field & format.mantissa_mask(), format.mantissa_bits)});
}

std::string bits_heading(const Format& format) {
  return join_fields({format.is_signed ? "s" : "", heading("exp", format.exponent_bits),
                      heading(format.twos_complement ? "integer" : "man", format.mantissa_bits)});
}

FormatFacts facts_of(const Format& format) {
  FormatFacts facts;
  facts.format = format;
  facts.name = format_name(format);
  for (const NamedFormat& named : kNamedFormats) {
    if (named.format == format) facts.note = named.note;
  }
  facts.max = max_value(format);
  facts.lowest = lowest_value(format);
  facts.min_normal = min_normal(format);
  facts.min_positive = min_positive(format);
  facts.epsilon = epsilon(format);
  facts.nan_ranges = nan_ranges(format);
  facts.codes = std::int64_t{format.code_mask()} + 1;
  std::vector<double> magnitudes;
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
    const CodeClass code_class = class_of(format, code);
    if (code_class == CodeClass::nan || code_class == CodeClass::inf) continue;
    facts.subnormals += code_class == CodeClass::subnormal;
    magnitudes.push_back(std::fabs(decode(format, code)));
  }
  facts.finite_codes = static_cast<std::int64_t>(magnitudes.size());
  facts.finite_values = facts.finite_codes - (format.has_negative_zero() ? 1 : 0);
  const auto middle = magnitudes.begin() + static_cast<std::ptrdiff_t>(magnitudes.size() / 2);
  std::nth_element(magnitudes.begin(), middle, magnitudes.end());
  facts.median_magnitude = *middle;
  return facts;
}

nlohmann::ordered_json json_of(const FormatFacts& facts) {
  const Format& format = facts.format;
  return {{"name", facts.name},
          {"note", facts.note},
          {"bits", format.bits()},
          {"exponent_bits", format.exponent_bits},
          {"mantissa_bits", format.mantissa_bits},
          {"bias", format.bias},
          {"signed", format.is_signed},
          {"max", facts.max},
          {"lowest", facts.lowest},
          {"min_normal", facts.min_normal},
          {"min_positive", facts.min_positive},
          {"epsilon", facts.epsilon},
          {"nan", nan_kind(format.nan)},
          {"nan_codes", facts.nan_ranges},
          {"has_inf", format.has_inf},
          {"has_zero", format.has_zero},
          {"has_negative_zero", format.has_negative_zero()},
          {"twos_complement", format.twos_complement},
          {"codes", facts.codes},
          {"finite_codes", facts.finite_codes},
          {"finite_values", facts.finite_values},
          {"subnormal_codes", facts.subnormals}};
}

}  // namespace octavo::cli
