// Human-readable numbers, exact wherever that fits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/format/format.h"

namespace octavo::cli {

// All digits of a finite double, in fixed or scientific form, whichever is shorter to read; "NaN",
// "Inf", "-Inf", "-0". Beyond `limit` characters the digits are truncated with "...".
std::string exact_decimal(double value, std::size_t limit = 40);

// Short and still exact where it can be: 448, 0.015625, 2^-16; six digits otherwise.
std::string short_number(double value);

// 1234567 -> 1,234,567.
std::string grouped(std::int64_t count);
// "1 tensor", "1,234 tensors".
std::string grouped(std::int64_t count, std::string_view one);

// 1536 -> 1.5 KiB.
std::string bytes_text(double bytes);

// The value as significand and exponent: "1.75 * 2^8", "0.125 * 2^-6" for subnormals, "-96 / 64"
// for integers; always exact. Empty for zero, Inf and NaN.
std::string reading_of(const Format& format, std::uint32_t code);

// The exponent k when value is exactly 2^k; false when it is not.
bool is_power_of_two(double value, int* exponent);

}  // namespace octavo::cli
