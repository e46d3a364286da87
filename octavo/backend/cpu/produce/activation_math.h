// exp, erfc and the activations (GELU, SiLU, ReLU), in f64 without branches, so that compilers
// vectorise loops over them. Relative errors are below 6e-10, a hundredth of the last place of the
// f32 that the result is rounded to; libm's functions would be exact to f64, and a tenth as fast.
// Internal linkage: instruction sets compile them for themselves.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace octavo::cpu {
namespace {

// Branch-free select by masks: compilers make a branch of `?:` on f64.
inline double chosen(bool condition, double a, double b) {
  const std::uint64_t mask = std::uint64_t{0} - static_cast<std::uint64_t>(condition);
  return std::bit_cast<double>((std::bit_cast<std::uint64_t>(a) & mask) |
                               (std::bit_cast<std::uint64_t>(b) & ~mask));
}

// Inf above the range of f64 and 0 below it. NaN may become any number: callers multiply or divide
// by something that is NaN then.
inline double exp_of(double x) {
  constexpr double kFar = 762.0;  // past both ends of f64's range, where 2^k still has an exponent
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  // ln 2 in two parts: the first has enough zeros at its end for a product with k to be exact.
  constexpr double kLn2High = 0x1.62e42fefa0000p-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kRounder = 0x1.8p+52;  // added, it leaves an integer in the low bits
  const double below = chosen(x < kFar, x, kFar), clamped = chosen(below > -kFar, below, -kFar);
  const double shifted = clamped * kLog2E + kRounder, k = shifted - kRounder;
  const double r = (clamped - k * kLn2High) - k * kLn2Low;
  // Taylor: |r| <= ln(2) / 2, so the truncation error is below r^9 / 9! = 2e-10.
  double p = 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // 2^k in two factors: k itself may be beyond f64's exponents.
  const auto whole = std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(kRounder);
  const std::int64_t half = whole >> 1;
  const auto power = [](std::int64_t exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  };
  return p * power(half) * power(whole - half);
}

// erfc(z) for z >= 0: exp(-z^2) times a function without a tail, which is c / (z + c) times a
// polynomial in (z - c) / (z + c). Its coefficients are a Chebyshev fit for z up to 28, where erfc
// leaves f64; relative error 3.5e-10.
inline double erfc_of(double z) {
  constexpr double kCentre = 3.0, kEnd = 28.0;
  const double inside = chosen(z < kEnd, z, kEnd);
  const double inverse = 1.0 / (inside + kCentre), t = (inside - kCentre) * inverse;
  double p = -2.3630590334385011927e-6;
  p = p * t + 7.7591703251488785456e-6;
  p = p * t + 3.0839572153427362734e-5;
  p = p * t - 9.0691161051874499277e-5;
  p = p * t - 1.7937637545905526445e-4;
  p = p * t + 1.0108330627325191958e-3;
  p = p * t - 4.0527601359520484935e-4;
  p = p * t - 8.9423214474947624238e-3;
  p = p * t + 3.9842765121427932376e-2;
  p = p * t - 1.0348909498178214481e-1;
  p = p * t + 1.9674277533691746847e-1;
  p = p * t - 2.9446481749362728484e-1;
  p = p * t + 3.5800230246112794596e-1;
  return exp_of(-z * z) * (p * (kCentre * inverse));
}

inline double gelu_of(double x) {
  constexpr double kSqrtHalf = 0x1.6a09e667f3bcdp-1;
  const double tail = 0.5 * erfc_of(std::fabs(x) * kSqrtHalf);
  return x * chosen(x > 0.0, 1.0 - tail, tail);
}

inline double gelu_tanh_of(double x) {
  constexpr double kMinusTwiceSqrtTwoByPi = -0x1.9884533d43651p+0;
  return x / (1.0 + exp_of(kMinusTwiceSqrtTwoByPi * (x + 0.044715 * (x * x * x))));
}

inline double silu_of(double x) { return x / (1.0 + exp_of(-x)); }

// By bits: of a selection with zero AVX-512 makes a load under a mask, and so a memory access that
// depends on the value. NaN stays.
inline double relu_of(double x) {
  constexpr std::uint64_t kSize = ~(std::uint64_t{1} << 63), kInf = 0x7FF0000000000000u;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto negative = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits) >> 63),
             nan = std::uint64_t{0} - static_cast<std::uint64_t>((bits & kSize) > kInf);
  return std::bit_cast<double>(bits & (~negative | nan));
}

}  // namespace
}  // namespace octavo::cpu
