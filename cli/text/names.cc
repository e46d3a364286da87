#include "cli/text/names.h"

#include <charconv>
#include <cstdint>

#include "octavo/format/parse_format.h"

namespace octavo::cli {
namespace {

constexpr Format kFloat16{
    .exponent_bits = 5, .mantissa_bits = 10, .bias = 15, .has_inf = true, .nan = Nan::ieee};
constexpr Format kBfloat16{
    .exponent_bits = 8, .mantissa_bits = 7, .bias = 127, .has_inf = true, .nan = Nan::ieee};
constexpr DType kValueTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

}  // namespace

Format Element::as_format() const {
  if (dtype == DType::f16) return kFloat16;
  if (dtype == DType::bf16) return kBfloat16;
  return format;
}

std::string Element::name() const {
  return is_code() ? format_name(format) : std::string(dtype_name(dtype));
}

Format format_argument(std::string_view where, std::string_view typed) {
  try {
    return parse_format(typed);
  } catch (const Error& error) {
    throw UsageError(text(where, ' ', reason_of(error), '.', did_you_mean(typed, format_names())));
  }
}

Element element_argument(std::string_view where, std::string_view typed) {
  try {
    return {.dtype = parse_dtype(typed)};
  } catch (const Error&) {
    // Not a value type; perhaps a format.
  }
  try {
    return {.dtype = DType::code, .format = parse_format(typed)};
  } catch (const Error& error) {
    throw UsageError(text(where, ' ', reason_of(error), "; or float64, float32, float16, bfloat16.",
                          did_you_mean(typed, element_names())));
  }
}

std::string seed_problem(const std::string& typed) {
  std::uint64_t seed = 0;
  const char* const end = typed.data() + typed.size();
  const auto [stop, error] = std::from_chars(typed.data(), end, seed);
  if (error == std::errc{} && stop == end) return "";
  return text("got '", shown(typed), "'; expected a number from 0 to 2^64 - 1");
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += text(out.empty() ? "" : ", ", name);
  return out;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const NamedFormat& named : kNamedFormats) names.emplace_back(named.name);
  return names;
}

std::vector<std::string> element_names() {
  std::vector<std::string> names = format_names();
  for (const DType dtype : kValueTypes) names.emplace_back(dtype_name(dtype));
  return names;
}

}  // namespace octavo::cli
