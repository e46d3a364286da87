#include "cli/text/number_text.h"

#include <algorithm>
#include <cmath>

#include "cli/text/formatted.h"
#include "octavo/base/count_text.h"
#include "octavo/format/decode.h"

namespace octavo::cli {
namespace {

// Beyond this many characters scientific form is easier to read.
constexpr int kLongestFixed = 24;
// Guard digits after the shown ones when a number is truncated, so that rounding the last does not
// show.
constexpr int kGuardDigits = 8;

// value = odd * 2^exponent, with exactly -exponent digits after the decimal point.
struct Dyadic {
  double odd;
  int exponent;
};
Dyadic dyadic(double value) {
  Dyadic parts{};
  parts.odd = std::frexp(std::fabs(value), &parts.exponent);
  for (; parts.odd != std::floor(parts.odd); parts.odd *= 2) --parts.exponent;
  return parts;
}

void strip_zeros(std::string& digits) {
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
}

}  // namespace

std::string exact_decimal(double value, std::size_t limit) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "Inf";
  if (value == 0) return std::signbit(value) ? "-0" : "0";
  const Dyadic parts = dyadic(value);
  const int behind_point = std::max(0, -parts.exponent);
  if (behind_point <= kLongestFixed && std::fabs(value) < 1e24) {
    const std::string fixed = formatted("{:.{}f}", value, behind_point);
    if (fixed.size() <= kLongestFixed) return fixed;
  }

  // odd * 2^-k = odd * 5^k / 10^k: so many digits, and all of them only where they are to be shown.
  const double significant =
      std::log10(parts.odd) +
      (parts.exponent < 0 ? -parts.exponent * std::log10(5.0) : parts.exponent * std::log10(2.0));
  const int most = static_cast<int>(limit) + kGuardDigits;
  std::string digits =
      formatted("{:.{}e}", value, std::min(static_cast<int>(significant) + 1, most));
  const std::size_t e = digits.find('e');
  const std::string exponent = digits.substr(e);
  digits.resize(e);
  strip_zeros(digits);
  if (digits.size() + exponent.size() > limit) {
    constexpr std::string_view kCut = "...";
    digits.resize(limit - exponent.size() - kCut.size());
    digits += kCut;
  }
  return digits + exponent;
}

bool is_power_of_two(double value, int* exponent) {
  if (!std::isfinite(value) || value <= 0) return false;
  const double fraction = std::frexp(value, exponent);
  --*exponent;
  return fraction == 0.5;
}

std::string short_number(double value) {
  constexpr std::size_t kShort = 11;
  std::string exact = exact_decimal(value);
  if (exact.size() <= kShort && exact.find('e') == std::string::npos) return exact;
  int exponent = 0;
  if (is_power_of_two(std::fabs(value), &exponent))
    return formatted("{}2^{}", value < 0 ? "-" : "", exponent);
  return formatted("{:.6g}", value);
}

std::string grouped(std::int64_t count) {
  const std::string digits = std::to_string(count < 0 ? -count : count);
  std::string out = count < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string grouped(std::int64_t count, std::string_view one) {
  return formatted("{} {}", grouped(count), plural(count, one));
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return unit == 0 ? formatted("{:.0f} B", bytes) : formatted("{:.1f} {}", bytes, kUnits[unit]);
}

std::string reading_of(const Format& format, std::uint32_t code) {
  const double value = decode(format, code);
  if (!std::isfinite(value) || value == 0) return "";
  const int step = format.min_step_exponent();
  if (format.twos_complement)
    return formatted("{:g} / {:g}", std::ldexp(value, -step), std::ldexp(1.0, -step));
  const int own_exponent = std::ilogb(value);
  const int exponent = own_exponent < format.min_exponent() ? format.min_exponent() : own_exponent;
  return formatted("{} * 2^{}", exact_decimal(std::ldexp(value, -exponent)), exponent);
}

}  // namespace octavo::cli
