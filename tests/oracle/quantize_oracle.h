// The quantization oracle, without the library's code: the numerics contract as worded, with every
// rounding to float32 done on integers. Numbers are kept as doubles that hold them exactly (all of
// them are float32 values); doubles are never added, multiplied or divided here but by powers of
// two.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/oracle/oracle.h"

namespace oracle {

__extension__ typedef unsigned __int128 Wide128;

inline constexpr double kLargestF32 = 0x1.fffffep127, kLeastScale = 0x1p-126;
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

// integer * 2^exponent, plus a little more where `more`, to the nearest float32, ties to even.
inline double nearest_f32(Wide128 integer, int exponent, bool more) {
  if (integer == 0) return 0;
  const auto high = static_cast<std::uint64_t>(integer >> 64),
             low = static_cast<std::uint64_t>(integer);
  const int width = high != 0 ? 64 + std::bit_width(high) : std::bit_width(low);
  constexpr int kDigits = 24, kLastPlace = -149;
  const int place = std::max(width + exponent - kDigits, kLastPlace);  // of the last digit kept
  const int dropped = place - exponent;
  const auto represented = [](std::uint64_t digits, int at) {
    const double value = std::ldexp(static_cast<double>(digits), at);
    return value > kLargestF32 ? kInfinite : value;
  };
  if (dropped <= 0) return represented(low, exponent);  // nothing to round
  if (dropped > width) return 0;                        // below half a place
  Wide128 kept = dropped < 128 ? integer >> dropped : 0;
  const Wide128 rest = integer - (dropped < 128 ? kept << dropped : 0);
  const Wide128 half = Wide128{1} << (dropped - 1);
  if (rest > half || (rest == half && (more || kept % 2 == 1))) ++kept;
  return represented(static_cast<std::uint64_t>(kept), place);
}

// A float32 value as an odd integer of at most 24 bits times a power of two.
struct Odd {
  std::uint64_t integer = 0;
  int exponent = 0;
  explicit Odd(double value) {
    const Exact exact = Exact::of(value);
    integer = static_cast<std::uint64_t>(exact.integer);
    exponent = exact.exponent;
    while (integer != 0 && integer % 2 == 0) {
      integer /= 2;
      ++exponent;
    }
  }
};

// RN(a * b) and RN(a / b), for a and b not negative and finite, b above zero.
inline double product_f32(double a, double b) {
  const Odd x(a), y(b);
  return nearest_f32(Wide128{x.integer} * y.integer, x.exponent + y.exponent, false);
}
inline double quotient_f32(double a, double b) {
  const Odd x(a), y(b);
  constexpr int kShift = 78;  // leaves over 50 bits of quotient, and fits
  const Wide128 numerator = Wide128{x.integer} << kShift;
  return nearest_f32(numerator / y.integer, x.exponent - y.exponent - kShift,
                     numerator % y.integer != 0);
}

inline std::uint32_t f32_bits(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

enum class Scales : std::uint8_t { f32, e8m0, e4m3_f32 };
enum class Rule : std::uint8_t { quotient, rceil, floor, ceil, even };

struct QuantizeQuestion {
  const char* element = "e4m3fn";
  std::int64_t tile_rows = 0, tile_cols = 0;  // 0: all
  Scales scales = Scales::f32;
  Rule rule = Rule::quotient;
};

struct QuantizeAnswer {
  std::vector<std::uint32_t> scales;  // as stored
  std::vector<std::uint32_t> codes;
  std::uint32_t tensor_scale = 0;  // where there are two levels
};

// octavo's own arithmetic: nearest even, saturating; NaN and Inf poison their tile.
class QuantizeOracle {
 public:
  explicit QuantizeOracle(const QuantizeQuestion& question)
      : question_(question), element_(row_named(question.element)), e4m3_(row_named("e4m3fn")) {
    for (const Meaning& meaning : element_.meanings())
      if (meaning.kind == Kind::number) max_ = std::max(max_, meaning.value);
  }

  [[nodiscard]] QuantizeAnswer quantize(const std::vector<double>& values, std::int64_t rows,
                                        std::int64_t cols) const {
    QuantizeAnswer answer;
    answer.codes.resize(values.size());
    double tensor_scale = 1;
    if (question_.scales == Scales::e4m3_f32) {
      double amax = 0;  // of the finite values
      for (const double x : values)
        if (std::isfinite(x)) amax = std::max(amax, std::fabs(x));
      if (amax > 0) tensor_scale = limited(quotient_f32(amax, 448 * max_));
      answer.tensor_scale = f32_bits(tensor_scale);
    }
    const auto side = [](std::int64_t tile, std::int64_t size) { return tile == 0 ? size : tile; };
    const std::int64_t high = side(question_.tile_rows, rows),
                       wide = side(question_.tile_cols, cols);
    for (std::int64_t top = 0; top < rows; top += high) {
      for (std::int64_t left = 0; left < cols; left += wide) {
        std::vector<std::size_t> members;
        for (std::int64_t r = top; r < std::min(rows, top + high); ++r)
          for (std::int64_t c = left; c < std::min(cols, left + wide); ++c)
            members.push_back(static_cast<std::size_t>(r * cols + c));
        answer.scales.push_back(tile(values, members, tensor_scale, answer.codes));
      }
    }
    return answer;
  }

 private:
  static double limited(double scale) { return std::clamp(scale, kLeastScale, kLargestF32); }

  [[nodiscard]] std::uint32_t encoded(double u) const {
    return element_.encode(u, {.nan_input = NanInput::zero}).code;
  }

  // The stored scale; codes go where the members are.
  std::uint32_t tile(const std::vector<double>& values, const std::vector<std::size_t>& members,
                     double tensor_scale, std::vector<std::uint32_t>& codes) const {
    double amax = 0;
    bool poisoned = false;
    for (const std::size_t i : members) {
      poisoned |= !std::isfinite(values[i]);
      amax = std::max(amax, std::fabs(values[i]));
    }
    if (poisoned) {
      for (const std::size_t i : members)
        codes[i] = encoded(std::numeric_limits<double>::quiet_NaN());
      return question_.scales == Scales::f32    ? 0x7FC00000u
             : question_.scales == Scales::e8m0 ? 0xFFu
                                                : 0x7Fu;
    }
    if (amax == 0) {
      for (const std::size_t i : members) codes[i] = encoded(values[i]);  // signs stay
      return question_.scales == Scales::f32    ? f32_bits(1)
             : question_.scales == Scales::e8m0 ? 0u
                                                : 0x38u;  // e4m3 one
    }
    if (question_.scales == Scales::e8m0) {
      const int exponent = std::clamp(rule_exponent(amax), -127, 127);
      for (const std::size_t i : members) {
        const Odd x(std::fabs(values[i]));
        codes[i] =
            encoded(std::copysign(nearest_f32(x.integer, x.exponent - exponent, false), values[i]));
      }
      return static_cast<std::uint32_t>(exponent + 127);
    }
    double scale = quotient_f32(amax, max_);
    std::uint32_t stored = 0;
    if (question_.scales == Scales::e4m3_f32) {
      stored = e4m3_.encode(quotient_f32(scale, tensor_scale), {}).code;
      if (stored == 0) stored = 1;  // a tile that is not zero keeps a scale
      scale = product_f32(e4m3_.meanings()[stored].value, tensor_scale);
    } else {
      scale = limited(scale);
      stored = f32_bits(scale);
    }
    const double inverse = std::min(quotient_f32(1, scale), kLargestF32);
    for (const std::size_t i : members)
      codes[i] = encoded(std::copysign(product_f32(std::fabs(values[i]), inverse), values[i]));
    return stored;
  }

  [[nodiscard]] int rule_exponent(double amax) const {
    const int floor = std::ilogb(amax) - std::ilogb(max_);
    switch (question_.rule) {
      case Rule::rceil: {  // the smallest power of two that saturates nothing
        int exponent = floor - 1;
        while (std::ldexp(max_, exponent) < amax) ++exponent;
        return exponent;
      }
      case Rule::ceil:
        return std::ldexp(1.0, std::ilogb(amax)) < amax ? floor + 1 : floor;
      case Rule::even: {
        const FormatRow& row = element_.row();
        const int mantissa = row.integer ? row.mantissa_bits - 1 : row.mantissa_bits;
        // Rounded half up to that many bits, does it reach the next power of two?
        const double from = 2.0 - std::ldexp(1.0, -mantissa - 1);
        return std::ldexp(amax, -std::ilogb(amax)) >= from ? floor + 1 : floor;
      }
      case Rule::floor:
      case Rule::quotient:
        break;
    }
    return floor;
  }

  QuantizeQuestion question_;
  Oracle element_, e4m3_;
  double max_ = 0;
};

}  // namespace oracle
