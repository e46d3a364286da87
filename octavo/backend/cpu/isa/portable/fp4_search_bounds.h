// The search for the e4m3 scale of an NVFP4 tile (policy mse): of nine codes that whose squared
// errors are least, by the sums that scale/fit.h defines. Nine times sixteen errors in f32 take 9
// operations a vector (fp4_squares_lanes.h). So they are first found in integers, with a bound of
// what that may be off by; only tiles where the bound leaves several codes open are summed in f32,
// for normal values one in 27.
//
// In integers u is a fixed-point number of 12 fraction bits. Those of the lowest code are rounded
// from f32; they are below 8, because the code of the amax is off by 1/16 of itself at most, and
// two below it (mantissas 10 and 8) is 4/5 of it: 6 * 21/20 * 5/4 = 7.875. Those of another code
// are products with the quotient of both scales, which depends on the mantissa of the amax's code
// alone. The upper five bits of u choose its value of E2M1 from a table, what saturates included.
//
// The bound. u is off by 1/2 from rounding, by 1/2 from the quotient and by 1/2 from the product's
// rounding, all in units of 2^-12, and by 0.02 at most from f32's own roundings: kOff = 1.52. |u -
// value| changes by no more than u does, whichever value is the nearest. So by the triangle
// inequality the roots of both sums of 16 squares are at most 4 kOff apart, and for any k > 0
//   |S - S'| <= 8 kOff sqrt(S') + 16 kOff^2 <= S' / k + 16 kOff^2 (k + 1)
// With k = 512 both terms are alike for ordinary tiles (S' about 2^25), 0.3 % in all. The sum in
// f32, the scale's rounding, the weights and the bounds themselves are good to 2^-20, and 2^-18 is
// added to 1 / k.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"
#include "octavo/scale/fit.h"

namespace octavo::cpu {
namespace {

struct Fp4Search {
  static constexpr int kCodes = kFitCodesBelow + 1 + kFitCodesAbove;
  // All nine codes are normal numbers, and none is beyond the largest.
  static constexpr std::uint32_t kLeastCode = 8 + kFitCodesBelow,
                                 kMaxCode = e4m3fn.max_field() - kFitCodesAbove;
  // Scales of these codes are normal f32, so that their quotients are those of the codes.
  static constexpr float kLeastTensorScale = 0x1p-100F;

  static constexpr double kOff = 1.52, kSlope = 1.0 / 512 + 0x1p-18,
                          kOffset = 16 * kOff * kOff * 513;
  static constexpr float kUnit = 4096.0F;
  static constexpr int kIndexShift = 10;  // from u to its quarter

  // Sixteen times the value of E2M1 nearest to u, for u from a quarter to the next.
  static constexpr std::uint8_t kGrid[32] = {0,  8,  8,  16, 16, 24, 24, 32, 32, 32, 48,
                                             48, 48, 48, 64, 64, 64, 64, 64, 64, 96, 96,
                                             96, 96, 96, 96, 96, 96, 96, 96, 96, 96};

  // Place i of the nine, where the last three bits of the amax's code are these: its scale over
  // that of the amax, and what u of the lowest code is multiplied by, of 15 fraction bits.
  static constexpr double ratio(int mantissa, int i) {
    return value(16 + mantissa - kFitCodesBelow + i) / value(16 + mantissa);
  }
  static constexpr std::int16_t quotient(int mantissa, int i) {
    const int low = 16 + mantissa - kFitCodesBelow;
    return static_cast<std::int16_t>(32768.0 * value(low) / value(low + i) + 0.5);
  }

 private:
  static constexpr double value(int code) {
    return static_cast<double>(8 + (code & 7)) * static_cast<double>(1 << (code >> 3));
  }
};

// May sums of a tile be found by integers?
[[gnu::always_inline]] inline bool fp4_is_ordinary(float tensor_scale, std::uint32_t own) {
  return own >= Fp4Search::kLeastCode && own <= Fp4Search::kMaxCode &&
         tensor_scale >= Fp4Search::kLeastTensorScale;
}

// The code with the least error by sums in f32: the amax's own first, then from the lowest on, and
// the first of equals. All nine, whatever is known of them: with no branch that is as fast as
// three. squares(factors, count, sums) sums up a tile's; there is room for twelve.
template <typename Squares>
std::uint32_t fp4_least_error_by(const Squares& squares, const TileScale* of_code,
                                 std::uint32_t own) {
  alignas(16) float factors[12] = {}, sums[12];
  std::uint32_t codes[Fp4Search::kCodes];
  for (int i = 0; i < Fp4Search::kCodes; ++i) {
    const int code = static_cast<int>(own) + fit_step(i, -kFitCodesBelow, 0),
              most = static_cast<int>(e4m3fn.max_field());
    codes[i] = static_cast<std::uint32_t>(code < 1 ? 1 : code > most ? most : code);
    factors[i] = of_code[codes[i]].factor;
  }
  squares(factors, Fp4Search::kCodes, sums);
  std::uint32_t best = own;
  double least = HUGE_VAL;
  for (int i = 0; i < Fp4Search::kCodes; ++i) {
    const double error =
        fit_error(AmaxPolicy::mse, static_cast<double>(sums[i]), of_code[codes[i]].scale);
    const bool is_less = error < least;
    least = is_less ? error : least;
    best = is_less ? codes[i] : best;
  }
  return best;
}

}  // namespace
}  // namespace octavo::cpu
