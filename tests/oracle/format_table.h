// The formats under test, typed from their definitions (OFP8 1.0, MX 1.0, and what AMD, ml_dtypes
// and IEEE 754 say of the others), with the limits those documents print. Nothing here is computed
// by the library.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace oracle {

// What the highest codes mean.
enum class Top : std::uint8_t {
  inf_and_nan,  // exponent all ones: Inf, then NaNs
  one_nan,      // only the very last magnitude is NaN
  all_numbers,  // no NaN, no Inf
};

struct FormatRow {
  const char* name;
  int exponent_bits, mantissa_bits, bias;
  bool is_signed = true;
  Top top = Top::inf_and_nan;
  bool minus_zero_is_nan = false;  // fnuz
  bool no_zero = false;            // code 0 is a power of two like the others
  bool integer = false;            // two's complement times 2^(1 - bias - mantissa_bits)

  int magnitude_bits() const { return exponent_bits + mantissa_bits; }
  int bits() const { return magnitude_bits() + (is_signed ? 1 : 0); }
};

// clang-format off
inline const std::vector<FormatRow>& named_rows() {
  static const std::vector<FormatRow> rows{
      {"e4m3fn",      4, 3, 7,   true,  Top::one_nan},
      {"e5m2",        5, 2, 15,  true,  Top::inf_and_nan},
      {"e4m3fnuz",    4, 3, 8,   true,  Top::all_numbers, true},
      {"e5m2fnuz",    5, 2, 16,  true,  Top::all_numbers, true},
      {"e4m3b11fnuz", 4, 3, 11,  true,  Top::all_numbers, true},
      {"e4m3",        4, 3, 7,   true,  Top::inf_and_nan},
      {"e3m4",        3, 4, 3,   true,  Top::inf_and_nan},
      {"e8m0fnu",     8, 0, 127, false, Top::one_nan, false, true},
      {"e3m2fn",      3, 2, 3,   true,  Top::all_numbers},
      {"e2m3fn",      2, 3, 1,   true,  Top::all_numbers},
      {"e2m1fn",      2, 1, 1,   true,  Top::all_numbers},
      {"mxint8",      0, 7, 0,   true,  Top::all_numbers, false, false, true},
      {"int8",        0, 7, -6,  true,  Top::all_numbers, false, false, true},
      {"int4",        0, 3, -2,  true,  Top::all_numbers, false, false, true},
  };
  return rows;
}

// Any ExMy: odd widths, 16 bits, no mantissa, one exponent bit, unsigned, unusual biases.
inline const std::vector<FormatRow>& other_rows() {
  static const std::vector<FormatRow> rows{
      {"e3m3",       3, 3, 3},
      {"e2m2",       2, 2, 1},
      {"e5m3fnu",    5, 3, 15,   false, Top::one_nan},
      {"e8m7",       8, 7, 127},   // bfloat16
      {"e5m10",      5, 10, 15},   // binary16
      {"e11m4",      11, 4, 1023},
      {"e4m0fn",     4, 0, 7,    true,  Top::all_numbers},
      {"e7m0fn",     7, 0, 63,   true,  Top::one_nan},
      {"e1m2",       1, 2, 0},
      {"e1m0fn",     1, 0, 0,    true,  Top::all_numbers},
      {"e6m1fnuz",   6, 1, 32,   true,  Top::all_numbers, true},
      {"e2m4b-3fnuz", 2, 4, -3,  true,  Top::all_numbers, true},
      {"e4m2fnu",    4, 2, 7,    false, Top::all_numbers},
      {"e5m4",       5, 4, 15},    // 10 bits: two bytes, not all used
      {"e0m7",       0, 7, 0,    true,  Top::all_numbers},  // fixed point, sign and magnitude
      {"e0m8fnu",    0, 8, 0,    false, Top::all_numbers},
      {"e0m3b2",     0, 3, 2,    true,  Top::all_numbers},
      {"e1m7fnu",    1, 7, 0,    false, Top::one_nan},
      {"e4m3b140fn", 4, 3, 140,  true,  Top::one_nan},  // lives among the subnormals of float32
      {"e5m0fnu",    5, 0, 15,   false, Top::all_numbers, false, true},
  };
  return rows;
}
// clang-format on

inline std::vector<FormatRow> all_rows() {
  std::vector<FormatRow> rows = named_rows();
  rows.insert(rows.end(), other_rows().begin(), other_rows().end());
  return rows;
}

inline const FormatRow& row_named(std::string_view name) {
  for (const auto* rows : {&named_rows(), &other_rows()}) {
    for (const FormatRow& row : *rows) {
      if (name == row.name) return row;
    }
  }
  throw std::out_of_range("no such row");
}

// The table of research/formats.md section 1, as the specifications print it.
struct PrintedLimits {
  const char* name;
  double max, min_normal, min_subnormal;
  unsigned max_code;
  int nan_codes, inf_codes, finite_values;  // +0 and -0 are one value
};

// clang-format off
inline const std::vector<PrintedLimits>& printed_limits() {
  static const std::vector<PrintedLimits> rows{
      {"e4m3fn",      448,        0x1p-6,   0x1p-9,   0x7E, 2,  0, 253},
      {"e5m2",        57344,      0x1p-14,  0x1p-16,  0x7B, 6,  2, 247},
      {"e4m3fnuz",    240,        0x1p-7,   0x1p-10,  0x7F, 1,  0, 255},
      {"e5m2fnuz",    57344,      0x1p-15,  0x1p-17,  0x7F, 1,  0, 255},
      {"e4m3",        240,        0x1p-6,   0x1p-9,   0x77, 14, 2, 239},
      {"e3m4",        15.5,       0x1p-2,   0x1p-6,   0x6F, 30, 2, 223},
      {"e4m3b11fnuz", 30,         0x1p-10,  0x1p-13,  0x7F, 1,  0, 255},
      {"e8m0fnu",     0x1p127,    0x1p-127, 0x1p-127, 0xFE, 1,  0, 255},
      {"e3m2fn",      28,         0x1p-2,   0x1p-4,   0x1F, 0,  0, 63},
      {"e2m3fn",      7.5,        1,        0x1p-3,   0x1F, 0,  0, 63},
      {"e2m1fn",      6,          1,        0.5,      0x7,  0,  0, 15},
      {"mxint8",      1.984375,   0x1p-6,   0x1p-6,   0x7F, 0,  0, 256},
      {"int8",        127,        1,        1,        0x7F, 0,  0, 256},
      {"int4",        7,          1,        1,        0x7,  0,  0, 16},
      {"e5m10",       65504,      0x1p-14,  0x1p-24,  0x7BFF, 2046, 2, 63487},
      {"e8m7",        0x1.FEp127, 0x1p-126, 0x1p-133, 0x7F7F, 254, 2, 65279},
  };
  return rows;
}
// clang-format on

}  // namespace oracle
