#include "octavo/round/policy_names.h"

#include <array>
#include <span>

#include "octavo/base/error.h"

namespace octavo {
namespace {

// In the order of the enumerations.
constexpr std::array<std::string_view, 7> kRoundings{
    "nearest_even", "nearest_away", "toward_zero", "up", "down", "to_odd", "stochastic"};
constexpr std::array<std::string_view, 4> kOverflows{"saturate", "propagate", "saturate_finite",
                                                     "ieee"};
constexpr std::array<std::string_view, 4> kNanInputs{"error", "zero", "max", "negated_zero"};

std::vector<std::string> list(std::span<const std::string_view> names) {
  return {names.begin(), names.end()};
}

std::size_t find(std::span<const std::string_view> names, std::string_view name,
                 std::string_view what) {
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
    known += text(i ? ", " : "", names[i]);
  }
  fail(ErrorCode::invalid_argument, what, "got '", shown(name), "'; expected one of ", known);
}

}  // namespace

std::string_view name_of(Rounding rounding) {
  return kRoundings[static_cast<std::size_t>(rounding)];
}
std::string_view name_of(Overflow overflow) {
  return kOverflows[static_cast<std::size_t>(overflow)];
}
std::string_view name_of(NanInput nan_input) {
  return kNanInputs[static_cast<std::size_t>(nan_input)];
}

Rounding parse_rounding(std::string_view name) {
  return static_cast<Rounding>(find(kRoundings, name, "rounding"));
}
Overflow parse_overflow(std::string_view name) {
  return static_cast<Overflow>(find(kOverflows, name, "overflow"));
}
NanInput parse_nan_input(std::string_view name) {
  return static_cast<NanInput>(find(kNanInputs, name, "nan"));
}

std::vector<std::string> rounding_names() { return list(kRoundings); }
std::vector<std::string> overflow_names() { return list(kOverflows); }
std::vector<std::string> nan_input_names() { return list(kNanInputs); }

}  // namespace octavo
