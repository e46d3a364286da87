// Products of values and factors for scaled conversions, in plain loops that the compiler turns
// into vectors of each instruction set. To odd: cut off after the last bit of the type, which is
// set where anything was cut off, so that encoding such a product rounds as if it were exact
// (round/product.h is the definition). With a fused multiply-add the rest of a product is exact;
// without one, products are made in integers.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "octavo/backend/cpu/isa.h"
#include "octavo/base/fp_env.h"
#include "octavo/round/product.h"

namespace octavo::cpu::portable {
namespace {

#if defined(__FMA__) || defined(__aarch64__)
inline constexpr bool kFusedProducts = true;
#else
inline constexpr bool kFusedProducts = false;
#endif

// A bf16 value is the upper half of an f32.
inline float as_f32(float value) { return value; }
inline float as_f32(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}
inline double as_f64(double value) { return value; }
inline double as_f64(float value) { return value; }
inline double as_f64(std::uint16_t value) { return as_f32(value); }

inline constexpr std::uint64_t kF64Sign = std::uint64_t{1} << 63;
// Stands for smaller products other than zero, whose rests are not doubles.
inline constexpr std::uint64_t kTinyF64 = std::uint64_t{1023 + kTinyProduct} << 52;

// Compilers turn the rest of a loop, less than a vector, into scalar code with branches on values.
// So loops run over whole vectors alone, and the tail is padded to one.
inline constexpr std::int64_t kWholeVectors = 64;

template <typename Value, typename Factor, typename Result, typename Loop>
[[gnu::always_inline]] inline void in_whole_vectors(const Value* values, const Factor* factors,
                                                    Result* out, std::int64_t n, Loop&& loop) {
  const std::int64_t whole = n / kWholeVectors * kWholeVectors;
  loop(values, factors, out, whole);
  if (whole == n) return;
  alignas(64) Value some_values[kWholeVectors] = {};
  alignas(64) Factor some_factors[kWholeVectors];
  alignas(64) Result results[kWholeVectors];
  std::fill_n(some_factors, kWholeVectors, Factor{1});
  std::copy(values + whole, values + n, some_values);
  if (factors != nullptr) std::copy(factors + whole, factors + n, some_factors);
  loop(some_values, some_factors, results, kWholeVectors);
  std::copy(results, results + (n - whole), out + whole);
}

// Toward zero is the mode of the floating-point environment in both. Rests of products below 2^-100
// are lost: formats are coarser there (ProductSpans).
template <typename Value>
void multiply_f32_odd(const void* values, const float* factors, float* out, std::int64_t n) {
  const FpEnvGuard guard(FpRounding::zero);
  const auto loop = [&](const Value* __restrict from, const float* __restrict by,
                        float* __restrict to, std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (kFusedProducts) {
        const float value = as_f32(from[i]), product = value * by[i];
        const float rest = __builtin_fmaf(value, by[i], -product);
        const auto inexact =
            static_cast<std::uint32_t>(std::fabs(rest) > 0.0F);  // not for Inf, NaN
        to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(product) | inexact);
      } else {
        // 48 bits at most: exact in f64, in the range of its normal numbers.
        const double product = as_f64(from[i]) * static_cast<double>(by[i]);
        const auto narrow = static_cast<float>(product);
        const auto inexact = static_cast<std::uint32_t>((static_cast<double>(narrow) != product) &
                                                        (std::fabs(product) <= 0x1.fffffep127));
        to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(narrow) | inexact);
      }
    }
  };
  in_whole_vectors(static_cast<const Value*>(values), factors, out, n, loop);
}

template <typename Value>
void multiply_f64_odd(const void* values, const double* factors, double* out, std::int64_t n) {
  const FpEnvGuard guard(FpRounding::zero);
  const auto loop = [&](const Value* __restrict from, const double* __restrict by,
                        double* __restrict to, std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = as_f64(from[i]);
      if constexpr (kFusedProducts) {
        const double product = value * by[i], rest = __builtin_fma(value, by[i], -product);
        const auto inexact = static_cast<std::uint64_t>(std::fabs(rest) > 0.0);
        const std::uint64_t bits = std::bit_cast<std::uint64_t>(product) | inexact;
        const auto size = static_cast<std::int64_t>(bits & ~kF64Sign);
        const std::int64_t least = (std::bit_cast<std::uint64_t>(value) & ~kF64Sign) != 0
                                       ? static_cast<std::int64_t>(kTinyF64)
                                       : 0;
        const auto kept = static_cast<std::uint64_t>(size > least ? size : least);
        to[i] = std::bit_cast<double>((bits & kF64Sign) | kept);
      } else {
        to[i] = product_to_odd(value, by[i]);
      }
    }
  };
  in_whole_vectors(static_cast<const Value*>(values), factors, out, n, loop);
}

// A factor with bits that f32 has no room for makes products that f32 never holds: the last bit is
// always set, and cutting off twice cuts off once. Zero, Inf and NaN stay.
template <typename Value>
void multiply_long_odd(const void* values, double factor, float* out, std::int64_t n) {
  const FpEnvGuard guard(FpRounding::zero);
  const auto loop = [&](const Value* __restrict from, const char* __restrict, float* __restrict to,
                        std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = as_f32(from[i]);
      const auto bits =
          std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<double>(value) * factor));
      const std::uint32_t before = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu;
      const bool inexact = before - 1u < 0x7F7FFFFFu;  // neither zero, nor Inf or NaN
      const auto size = static_cast<std::int32_t>((bits & 0x7FFFFFFFu) | (inexact ? 1u : 0u));
      const std::int32_t least = inexact ? 0x00800000 : 0;
      const auto kept = static_cast<std::uint32_t>(size > least ? size : least);
      to[i] = std::bit_cast<float>((bits & 0x80000000u) | kept);
    }
  };
  in_whole_vectors(static_cast<const Value*>(values), static_cast<const char*>(nullptr), out, n,
                   loop);
}

template <typename Wide>
void multiply(const Wide* values, const Wide* factors, Wide* out, std::int64_t n) {
  const FpEnvGuard guard;
  const auto loop = [&](const Wide* __restrict from, const Wide* __restrict by, Wide* __restrict to,
                        std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * by[i];
  };
  in_whole_vectors(values, factors, out, n, loop);
}

template <typename Wide>
void divide(const Wide* values, const Wide* factors, Wide* out, std::int64_t n) {
  const FpEnvGuard guard;
  const auto loop = [&](const Wide* __restrict from, const Wide* __restrict by, Wide* __restrict to,
                        std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] / by[i];
  };
  in_whole_vectors(values, factors, out, n, loop);
}

// The rest of a quotient that is cut off, value - quotient * factor, is a multiple of 2^-47 of the
// value's power of two: an f32 for values from 2^-100 on. Without a fused multiply-add it is exact
// in f64, whose products of two f32 are.
inline void divide_f32_odd(const float* values, const float* factors, float* out, std::int64_t n) {
  const FpEnvGuard guard(FpRounding::zero);
  const auto loop = [&](const float* __restrict from, const float* __restrict by,
                        float* __restrict to, std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float quotient = from[i] / by[i];
      std::uint32_t inexact = 0;  // not for Inf and NaN, whose rests are NaN
      if constexpr (kFusedProducts) {
        const float rest = __builtin_fmaf(-quotient, by[i], from[i]);
        inexact = static_cast<std::uint32_t>(std::fabs(rest) > 0.0F);
      } else {
        const double rest = as_f64(from[i]) - as_f64(quotient) * as_f64(by[i]);
        inexact = static_cast<std::uint32_t>(std::fabs(rest) > 0.0);
      }
      to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(quotient) | inexact);
    }
  };
  in_whole_vectors(values, factors, out, n, loop);
}

// A division takes a vector unit eight times as long as a product. The product with the reciprocal
// is within two units of the quotient; its rest, exact by a fused multiply-add, brings it within
// one, and the rest of that to the nearest double (Markstein's theorem: the reciprocal is the
// nearest one). A rest of zero or NaN (of Inf and NaN) leaves a quotient as it is, with its sign.
// By bits: a compiler may make a branch of a selection.
[[gnu::always_inline]] inline double corrected(double quotient, double rest, double reciprocal) {
  const auto mask = std::uint64_t{0} - static_cast<std::uint64_t>(std::fabs(rest) > 0.0);
  const auto closer = std::bit_cast<std::uint64_t>(__builtin_fma(rest, reciprocal, quotient));
  return std::bit_cast<double>((closer & mask) | (std::bit_cast<std::uint64_t>(quotient) & ~mask));
}

[[gnu::always_inline]] inline double quotient_of(double value, double factor, double reciprocal) {
  if constexpr (!kFusedProducts) return value / factor;
  const double first = value * reciprocal,
               near = corrected(first, __builtin_fma(-first, factor, value), reciprocal);
  return corrected(near, __builtin_fma(-near, factor, value), reciprocal);
}

inline void divide_by_one(const double* values, double factor, double* out, std::int64_t n) {
  const FpEnvGuard guard;
  const double reciprocal = 1.0 / factor;
  const auto loop = [&](const double* __restrict from, const char* __restrict,
                        double* __restrict to, std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = quotient_of(from[i], factor, reciprocal);
  };
  in_whole_vectors(values, static_cast<const char*>(nullptr), out, n, loop);
}

inline void quotients(const float* values, double factor, float* out, std::int64_t n) {
  const FpEnvGuard guard;
  const double reciprocal = 1.0 / factor;
  const auto loop = [&](const float* __restrict from, const char* __restrict, float* __restrict to,
                        std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<float>(quotient_of(from[i], factor, reciprocal));
  };
  in_whole_vectors(values, static_cast<const char*>(nullptr), out, n, loop);
}

// To odd from the nearest: one below it where it was rounded away from zero, its last bit set where
// it was rounded at all.
inline void long_products(const float* values, double factor, float* out, std::int64_t n) {
  const FpEnvGuard guard;
  const auto loop = [&](const float* __restrict from, const char* __restrict, float* __restrict to,
                        std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (kFusedProducts) {
        const double value = from[i], product = value * factor,
                     rest = __builtin_fma(value, factor, -product);
        const auto bits = std::bit_cast<std::uint64_t>(product),
                   inexact = static_cast<std::uint64_t>(std::fabs(rest) > 0.0),  // not for Inf, NaN
            away = inexact & (bits ^ std::bit_cast<std::uint64_t>(rest)) >> 63;
        to[i] = static_cast<float>(std::bit_cast<double>((bits - away) | inexact));
      } else {
        to[i] = static_cast<float>(product_to_odd(from[i], factor));
      }
    }
  };
  in_whole_vectors(values, static_cast<const char*>(nullptr), out, n, loop);
}

// The magnitude of an f32, or 2^-126 where it is less and `from` is not zero. In arithmetic:
// without a minimum of integers among its instructions a compiler branches.
inline std::uint32_t normal_or_zero(std::uint32_t narrow, std::uint64_t from) {
  const std::uint64_t magnitude = from & ~kF64Sign;
  const auto size = static_cast<std::int32_t>(narrow & 0x7FFFFFFFu),
             least = static_cast<std::int32_t>((magnitude | (0 - magnitude)) >> 63) << 23;
  const std::int32_t off = size - least;
  return static_cast<std::uint32_t>(size - (off & (off >> 31)));
}

// f64 to f32 to odd. Magnitudes below 2^-126 other than zero become that.
inline void narrow_odd(const double* values, float* out, std::int64_t n) {
  const FpEnvGuard guard(FpRounding::zero);
  constexpr std::uint64_t kBelow = (std::uint64_t{1} << 29) - 1;  // bits that f32 has no room for
  const auto loop = [&](const double* __restrict from, const char* __restrict, float* __restrict to,
                        std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto bits = std::bit_cast<std::uint64_t>(from[i]);
      const std::uint64_t odd = (bits | ((bits & kBelow) + kBelow)) & ~kBelow;
      const auto narrow =
          std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(odd)));
      to[i] = std::bit_cast<float>((narrow & 0x80000000u) | normal_or_zero(narrow, bits));
    }
  };
  in_whole_vectors(values, static_cast<const char*>(nullptr), out, n, loop);
}

// The same of quotients, but for Inf beyond the largest f32.
inline void quotients_odd(const float* values, double factor, float* out, std::int64_t n) {
  const FpEnvGuard guard;
  constexpr std::uint64_t kBelow = (std::uint64_t{1} << 29) - 1;
  const double reciprocal = 1.0 / factor;
  const auto loop = [&](const float* __restrict from, const char* __restrict, float* __restrict to,
                        std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto bits = std::bit_cast<std::uint64_t>(quotient_of(from[i], factor, reciprocal));
      const std::uint64_t odd = (bits | ((bits & kBelow) + kBelow)) & ~kBelow;
      const auto narrow =
          std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(odd)));
      to[i] = std::bit_cast<float>((narrow & 0x80000000u) | normal_or_zero(narrow, bits));
    }
  };
  in_whole_vectors(values, static_cast<const char*>(nullptr), out, n, loop);
}

inline void narrow_nearest(const double* values, float* out, std::int64_t n) {
  const FpEnvGuard guard;
  const auto loop = [&](const double* __restrict from, const char* __restrict, float* __restrict to,
                        std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  };
  in_whole_vectors(values, static_cast<const char*>(nullptr), out, n, loop);
}

inline constexpr ProductSpans kProductSpans{.f32_odd = multiply_f32_odd<float>,
                                            .bf16_odd = multiply_f32_odd<std::uint16_t>,
                                            .f32_long_odd = multiply_long_odd<float>,
                                            .bf16_long_odd = multiply_long_odd<std::uint16_t>,
                                            .f32_f64_odd = multiply_f64_odd<float>,
                                            .bf16_f64_odd = multiply_f64_odd<std::uint16_t>,
                                            .f64_odd = multiply_f64_odd<double>,
                                            .f32 = multiply<float>,
                                            .f64 = multiply<double>,
                                            .divide = divide<double>,
                                            .divide_f32 = divide<float>,
                                            .divide_f32_odd = divide_f32_odd,
                                            .divide_by_one = divide_by_one,
                                            .narrow_odd = narrow_odd,
                                            .narrow = narrow_nearest,
                                            .long_products = long_products,
                                            .quotients = quotients,
                                            .quotients_odd = quotients_odd};

}  // namespace
}  // namespace octavo::cpu::portable
