// Rows of f32 as 15-bit integers in two int8 limbs (hi, lo), for products by int8 instructions:
//   x = unit * (128 hi + lo),  |hi| <= 127, -64 <= lo <= 63,
// the unit being a power of two such that the largest magnitude of the row is above 8128 units. So
// x is off by at most half a unit, 2^-14 of the row's amax; e4m3 codes above 2^-10 of their row's
// amax are exact. Of a product of two rows hi hi, hi lo and lo hi are summed, exactly; lo lo is
// left out, at most 4096 units of each for every product.
#pragma once

#include <cstdint>

namespace octavo::cpu {

// The factor of int8 sums besides the units of both rows: sums are 128 hh + (hl + lh).
inline constexpr float kLimbFactor = 128.0F;
// 1024 products of 127 * 127 * 128 and the lower products fit in 32 bits.

// Writes n limbs each, and zeros up to `padded`; returns the unit, 0 for a row of zeros. Rows are
// finite.
float split_limbs(const float* values, std::int64_t n, std::int64_t padded, std::int8_t* hi,
                  std::int8_t* lo);

}  // namespace octavo::cpu
