#include "octavo/quant/scaling_text.h"

#include <array>
#include <charconv>
#include <set>

#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "scaling";

template <typename Number>
Number parse_number(std::string_view key, std::string_view value) {
  Number number{};
  const auto [end, error] = std::from_chars(value.begin(), value.end(), number);
  check(error == std::errc{} && end == value.end(), ErrorCode::invalid_argument, kOp, "got ", key,
        "=", shown(value), "; expected a number");
  return number;
}

bool parse_flag(std::string_view key, std::string_view value) {
  check(value == "0" || value == "1", ErrorCode::invalid_argument, kOp, "got ", key, "=",
        shown(value), "; expected 0 or 1");
  return value == "1";
}

// The shortest decimal that reads back as the same number.
template <typename Number>
std::string number_text(Number number) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return {buffer.data(), end};
}

// Fields of EncodePolicy that have no names of their own, as numbers in the order of their enums.
template <typename Enum>
Enum parse_choice(std::string_view key, std::string_view value, int most) {
  const int number = parse_number<int>(key, value);
  check(number >= 0 && number <= most, ErrorCode::invalid_argument, kOp, "got ", key, "=", number,
        "; expected 0 to ", most);
  return static_cast<Enum>(number);
}

void set_field(Scaling& s, std::string_view key, std::string_view value) {
  if (key == "format") {
    s.format = parse_format(value);
  } else if (key == "tile") {
    const std::size_t by = value.find('x');
    check(by != std::string_view::npos, ErrorCode::invalid_argument, kOp, "got tile=", shown(value),
          "; expected ROWSxCOLS");
    s.tile = {parse_number<std::int64_t>(key, value.substr(0, by)),
              parse_number<std::int64_t>(key, value.substr(by + 1))};
  } else if (key == "axis") {
    s.axis = parse_number<int>(key, value);
  } else if (key == "scale") {
    s.scale.format = parse_scale_format(value);
  } else if (key == "rule") {
    s.scale.rule = parse_scale_rule(value);
  } else if (key == "non_finite") {
    s.scale.non_finite = parse_non_finite(value);
  } else if (key == "arith") {
    s.scale.arith = parse_arith(value);
  } else if (key == "margin") {
    s.scale.margin = parse_number<int>(key, value);
  } else if (key == "min_amax") {
    s.scale.min_amax = parse_number<float>(key, value);
  } else if (key == "policy") {
    parse_amax_policy(value, s);
  } else if (key == "rounding") {
    s.encode.rounding = parse_rounding(value);
  } else if (key == "overflow") {
    s.encode.overflow = parse_overflow(value);
  } else if (key == "nan") {
    s.encode.nan_input = parse_nan_input(value);
  } else if (key == "nan_code") {
    s.encode.nan_code = parse_choice<NanCode>(key, value, 2);
  } else if (key == "seed") {
    s.encode.seed = parse_number<std::uint64_t>(key, value);
  } else if (key == "first_index") {
    s.encode.first_index = parse_number<std::uint64_t>(key, value);
  } else if (key == "stochastic_bits") {
    s.encode.stochastic_bits = parse_number<int>(key, value);
  } else if (key == "rowwise") {
    s.rowwise = parse_flag(key, value);
  } else if (key == "columnwise") {
    s.columnwise = parse_flag(key, value);
  } else if (key == "packed") {
    s.packed = parse_flag(key, value);
  } else if (key == "scale_order") {
    s.scale_order = parse_scale_order(value);
  } else if (key == "hadamard_rowwise") {
    s.hadamard.rowwise = parse_flag(key, value);
  } else if (key == "hadamard_columnwise") {
    s.hadamard.columnwise = parse_flag(key, value);
  } else if (key == "hadamard_signs") {
    s.hadamard.signs = parse_number<std::uint16_t>(key, value);
  } else {
    fail(ErrorCode::invalid_argument, kOp, "does not know '", shown(key),
         "'; it may come from a later version of octavo");
  }
}

}  // namespace

std::string to_text(const Scaling& scaling) {
  const Scaling defaults;
  std::string out = text("format=", format_name(scaling.format), " tile=", scaling.tile.rows, "x",
                         scaling.tile.cols, " scale=", name_of(scaling.scale.format),
                         " rule=", name_of(scaling.scale.rule));
  const auto add = [&](std::string_view key, const auto& value, const auto& usual,
                       const auto& as_text) {
    if (value != usual) out += text(" ", key, "=", as_text(value));
  };
  const auto named = [](auto value) { return name_of(value); };
  const auto number = [](auto value) { return number_text(value); };
  const auto flag = [](bool value) { return value ? "1" : "0"; };
  const EncodePolicy &encode = scaling.encode, &usual = defaults.encode;
  add("axis", scaling.axis, defaults.axis, number);
  add("non_finite", scaling.scale.non_finite, defaults.scale.non_finite, named);
  add("arith", scaling.scale.arith, defaults.scale.arith, named);
  add("margin", scaling.scale.margin, defaults.scale.margin, number);
  add("min_amax", scaling.scale.min_amax, defaults.scale.min_amax, number);
  if (scaling.policy == AmaxPolicy::percentile) {
    out += text(" policy=percentile:", number_text(scaling.percentile));
  } else {
    add("policy", scaling.policy, defaults.policy, named);
  }
  add("rounding", encode.rounding, usual.rounding, named);
  add("overflow", encode.overflow, usual.overflow, named);
  add("nan", encode.nan_input, usual.nan_input, named);
  add("nan_code", static_cast<int>(encode.nan_code), static_cast<int>(usual.nan_code), number);
  add("seed", encode.seed, usual.seed, number);
  add("first_index", encode.first_index, usual.first_index, number);
  add("stochastic_bits", encode.stochastic_bits, usual.stochastic_bits, number);
  add("rowwise", scaling.rowwise, defaults.rowwise, flag);
  add("columnwise", scaling.columnwise, defaults.columnwise, flag);
  add("packed", scaling.packed, defaults.packed, flag);
  add("scale_order", scaling.scale_order, defaults.scale_order, named);
  add("hadamard_rowwise", scaling.hadamard.rowwise, false, flag);
  add("hadamard_columnwise", scaling.hadamard.columnwise, false, flag);
  add("hadamard_signs", scaling.hadamard.signs, std::uint16_t{0}, number);
  return out;
}

Scaling parse_scaling(std::string_view line) {
  Scaling scaling;
  std::set<std::string_view> seen;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view field = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    const std::size_t equals = field.find('=');
    check(equals != std::string_view::npos, ErrorCode::invalid_argument, kOp, "got '", shown(field),
          "'; expected key=value");
    const std::string_view key = field.substr(0, equals);
    check(seen.insert(key).second, ErrorCode::invalid_argument, kOp, "'", shown(key),
          "' comes twice");
    set_field(scaling, key, field.substr(equals + 1));
  }
  check_scaling(scaling);
  return scaling;
}

}  // namespace octavo
