#include "octavo/format/parse_format.h"

#include <cctype>

#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr std::string_view kGrammar =
    "expected e<E>m<M>[b<bias>][fn|fnuz|fnu], such as e4m3fn, e5m2, e3m4 or e4m3b11fnuz, or "
    "mxint8, "
    "int8 or int4";

// The bias where a name says none. Fixed point: that of mxint8.
int usual_bias(int exponent_bits, bool one_zero) {
  if (exponent_bits == 0) return 0;
  const int half_range = 1 << (exponent_bits - 1);
  return one_zero ? half_range : half_range - 1;
}

// A cursor over the name; every take_ function consumes what it matches and nothing else.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  // At most four digits, so that no name can overflow an int.
  std::optional<int> take_number() {
    int value = 0;
    std::size_t digits = 0;
    while (digits < rest_.size() && digits < 4 &&
           std::isdigit(static_cast<unsigned char>(rest_[digits]))) {
      value = value * 10 + (rest_[digits++] - '0');
    }
    if (digits == 0) return std::nullopt;
    rest_.remove_prefix(digits);
    return value;
  }

  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

[[noreturn]] void fail_name(std::string_view name, std::string_view why) {
  fail(ErrorCode::invalid_argument, "format", "'", shown(name), "' is not a format: ", why);
}

}  // namespace

Format parse_format(std::string_view name) {
  std::string lower;
  for (char c : name.substr(0, 64))
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const NamedFormat& named : kNamedFormats) {
    if (lower == named.name && name.size() == lower.size()) return named.format;
  }

  Reader reader(lower);
  reader.take("torch.");
  std::optional<int> claimed_bits;
  if (reader.take("float")) {
    claimed_bits = reader.take_number();
    if (!claimed_bits || !reader.take("_")) fail_name(name, kGrammar);
  }
  if (!reader.take("e")) fail_name(name, kGrammar);
  const std::optional<int> exponent_bits = reader.take_number();
  if (!exponent_bits || !reader.take("m")) fail_name(name, kGrammar);
  const std::optional<int> mantissa_bits = reader.take_number();
  if (!mantissa_bits) fail_name(name, kGrammar);
  std::optional<int> bias;
  if (reader.take("b")) {
    const bool minus = reader.take("-");
    bias = reader.take_number();
    if (!bias) fail_name(name, kGrammar);
    if (minus) bias = -*bias;
  }
  const bool one_zero = reader.take("fnuz");
  const bool is_unsigned = !one_zero && reader.take("fnu");
  const bool finite = one_zero || is_unsigned || reader.take("fn");
  if (!reader.done() || name.size() > 64) fail_name(name, kGrammar);

  const int bits = *exponent_bits + *mantissa_bits + (is_unsigned ? 0 : 1);
  const bool fixed_point = *exponent_bits == 0;
  if (fixed_point && finite && !is_unsigned)
    fail_name(name, "fixed point (e0) has no Inf or NaN to leave out; only fnu says more of it");
  if (bits > 16) fail_name(name, text("it has ", bits, " bits, and the most is 16"));
  if (claimed_bits && *claimed_bits != bits) {
    fail_name(name, text("it says ", *claimed_bits, " bits, but its fields add up to ", bits));
  }
  Format format;
  format.exponent_bits = static_cast<std::uint8_t>(*exponent_bits);
  format.mantissa_bits = static_cast<std::uint8_t>(*mantissa_bits);
  format.bias = static_cast<std::int16_t>(bias ? *bias : usual_bias(*exponent_bits, one_zero));
  format.is_signed = !is_unsigned;
  format.has_inf = !finite && !fixed_point;
  format.nan = fixed_point ? Nan::none
               : !finite   ? Nan::ieee
               : one_zero  ? Nan::negative_zero
               : bits >= 8 ? Nan::all_ones
                           : Nan::none;
  if (is_unsigned && *mantissa_bits == 0) format.has_zero = format.has_subnormals = false;
  if (const auto problem = format_problem(format)) fail_name(name, *problem);
  return format;
}

std::string format_name(const Format& format) {
  for (const NamedFormat& named : kNamedFormats) {
    if (format == named.format) return std::string(named.name);
  }
  if (format.twos_complement) return "invalid";
  const bool one_zero = format.nan == Nan::negative_zero;
  std::string name = text('e', int{format.exponent_bits}, 'm', int{format.mantissa_bits});
  if (format.bias != usual_bias(format.exponent_bits, one_zero)) name += text('b', format.bias);
  if (format.is_fixed_point()) return format.is_signed ? name : name + "fnu";
  if (!format.has_inf) name += one_zero ? "fnuz" : format.is_signed ? "fn" : "fnu";
  return name;
}

std::optional<std::string> format_problem(const Format& format) {
  const int bits = format.bits();
  if (bits < 2 || bits > 16) return text("it has ", bits, " bits, and a format has 2 to 16");
  if (format.twos_complement) {
    return format == mxint8 || format == int8 || format == int4
               ? std::nullopt
               : std::optional<std::string>("mxint8, int8 and int4 are the only integer formats");
  }
  if (format.is_fixed_point()) {
    if (format.has_inf || format.nan != Nan::none) return "fixed point has no Inf and no NaN";
    if (!format.has_zero || !format.has_subnormals) return "fixed point begins with zero";
    return format.min_step_exponent() < -1022 || format.bias < -1000
               ? std::optional<std::string>(
                     text("bias ", format.bias, " puts values beyond the range of a double"))
               : std::nullopt;
  }
  if (format.exponent_bits > 11)
    return text(int{format.exponent_bits}, " exponent bits reach beyond a double; the most is 11");
  if (format.has_inf != (format.nan == Nan::ieee))
    return "Inf and IEEE NaNs come together or not at all";
  if (format.has_inf && format.mantissa_bits == 0)
    return "without a mantissa bit Inf leaves no code for NaN; use the suffix fn";
  const Nan finite_nan = bits >= 8 ? Nan::all_ones : Nan::none;
  if (!format.has_inf && format.nan != Nan::negative_zero && format.nan != finite_nan) {
    return "a format without Inf has one NaN magnitude from eight bits on, and none below";
  }
  if (format.nan == Nan::negative_zero && !format.is_signed)
    return "an unsigned format has no minus zero to hold NaN";
  if (format.has_zero != format.has_subnormals)
    return "zero and subnormals come together or not at all";
  if (!format.has_zero && (format.is_signed || format.mantissa_bits > 0))
    return "only unsigned formats without a mantissa leave out zero";
  if (format.has_zero && format.max_field() == 0) return "it has no finite value besides zero";
  // Everything must be exact in a double: grid, smallest normal and largest finite value.
  const int top = static_cast<int>(format.max_field() >> format.mantissa_bits) - format.bias;
  if (format.min_exponent() < -1022 || top > 1023) {
    return text("bias ", format.bias, " puts values beyond the range of a double");
  }
  return std::nullopt;
}

}  // namespace octavo
