// Isa::fp4_squares on vectors of four f32, as GCC and Clang have them for every processor. Steps
// that an instruction set does in one instruction are those of a struct `Steps`:
//   static Floats at_least(Floats x, Floats least);  of positive numbers
//   static Floats at_most(Floats x, Floats most);    most, where x is NaN
//   static Floats pair_sums(Floats a, Floats b);     a0 + a1, a2 + a3, b0 + b1, b2 + b3
//
// The error of rounding to E2M1 does not need the code. With M about 2^22 u the last place of u + M
// is half of u's power of two, the spacing of E2M1; (u + M) - M is u, rounded to one mantissa bit,
// and both differences are exact. To a tie's two neighbours it is equally far. Three things make M
// a product and no bit field:
//   - the factor is 2^22 - 1: u (2^22 - 1) + u stays below the next power of two, also where u is
//     just below one; where u is one, or an ulp above it, M is still in the binade below, but u + M
//     is not (FitErrors.OfE2m1WithoutCodes tries all u from 1 to 8)
//   - below 1 the spacing of E2M1 stays 1/2: M is that of 5/4 at least
//   - from 7 on the sum gives 8 and more, or NaN where M overflows: limited to 6
//
// 9 operations for four values and a factor: scale, 5/4, M, two sums, 6, error, square, sum; one
// more where errors are weighted.
// Everything here has internal linkage on purpose: each instruction set compiles it for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace octavo::cpu {
namespace {

using Fp4Floats = float __attribute__((vector_size(16)));

inline Fp4Floats fp4_splat(float x) { return Fp4Floats{x, x, x, x}; }

template <typename Steps>
[[gnu::always_inline]] inline Fp4Floats fp4_square(Fp4Floats magnitude, Fp4Floats factor) {
  constexpr float kAlmost = 0x1p22F - 1.0F;
  const Fp4Floats u = magnitude * factor;
  const Fp4Floats big = Steps::at_least(u, fp4_splat(1.25F)) * fp4_splat(kAlmost);
  const Fp4Floats rounded = Steps::at_most((u + big) - big, fp4_splat(6.0F));
  const Fp4Floats error = u - rounded;
  return error * error;
}

// Of one factor: the sixteen sums of a run, brought down to four.
template <typename Steps, bool kWeighted>
[[gnu::always_inline]] inline Fp4Floats fp4_four_sums(const Fp4Floats* magnitudes,
                                                      const Fp4Floats* weights, int vectors,
                                                      float factor) {
  const Fp4Floats by = fp4_splat(factor);
  const auto square = [&](int i) __attribute__((always_inline)) {
    const Fp4Floats plain = fp4_square<Steps>(magnitudes[i], by);
    if constexpr (kWeighted) return plain * weights[i];
    return plain;
  };
  Fp4Floats sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = square(i);
  for (int first = 4; first < vectors; first += 4)
    for (int i = 0; i < 4; ++i) sums[i] += square(first + i);
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

template <typename Steps, int kVectors, bool kWeighted = false>
[[gnu::always_inline]] inline void fp4_squares_of(const Fp4Floats* magnitudes, int vectors,
                                                  const float* factors, int count, float* sums,
                                                  const Fp4Floats* weights = nullptr) {
  const int all = kVectors > 0 ? kVectors : vectors;
  const auto store = [&](int i, Fp4Floats out) { std::memcpy(sums + i, &out, sizeof out); };
  int i = 0;
  for (; count - i > 2; i += 4) {
    Fp4Floats four[4];
    for (int k = 0; k < 4; ++k)
      four[k] = fp4_four_sums<Steps, kWeighted>(magnitudes, weights, all, factors[i + k]);
    store(i,
          Steps::pair_sums(Steps::pair_sums(four[0], four[1]), Steps::pair_sums(four[2], four[3])));
  }
  if (i < count) {
    Fp4Floats two[2];
    for (int k = 0; k < 2; ++k)
      two[k] = fp4_four_sums<Steps, kWeighted>(magnitudes, weights, all, factors[i + k]);
    const Fp4Floats pairs = Steps::pair_sums(two[0], two[1]);
    store(i, Steps::pair_sums(pairs, pairs));
  }
}

template <typename Steps>
[[gnu::always_inline]] inline void fp4_squares_lanes(const float* x, const float* weights,
                                                     std::int64_t n, const float* factors,
                                                     int count, float* sums) {
  using Words = std::uint32_t __attribute__((vector_size(16)));
  constexpr int kMax = 128 / 4;
  Fp4Floats magnitudes[kMax];
  const int vectors = static_cast<int>(n / 4);
  for (int i = 0; i < vectors; ++i) {
    Words bits;
    std::memcpy(&bits, x + 4 * i, sizeof bits);
    magnitudes[i] = reinterpret_cast<Fp4Floats>(bits & 0x7FFFFFFFu);
  }
  if (weights != nullptr) {
    Fp4Floats by_value[kMax];
    std::memcpy(by_value, weights, static_cast<std::size_t>(n) * sizeof(float));
    return fp4_squares_of<Steps, 0, true>(magnitudes, vectors, factors, count, sums, by_value);
  }
  if (vectors == 4) return fp4_squares_of<Steps, 4>(magnitudes, vectors, factors, count, sums);
  if (vectors == 8) return fp4_squares_of<Steps, 8>(magnitudes, vectors, factors, count, sums);
  fp4_squares_of<Steps, 0>(magnitudes, vectors, factors, count, sums);
}

}  // namespace
}  // namespace octavo::cpu
