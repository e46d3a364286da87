// Isa::fp4_squares over f32 lanes: the arithmetic of portable/fp4_squares_lanes.h, whose sixteen
// sums of a run are one vector here (AVX-512) or two. The order of additions is the same.
//
// 9 operations for a vector and a factor. For sixteen values and a factor: 36 in vectors of four
// before, 9 of AVX-512 and 18 of AVX2 now; and 4 to 6 to add a factor's sums up. One more for a
// vector where errors are weighted.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>

namespace octavo::cpu {
namespace {

template <typename L>
[[gnu::always_inline]] inline typename L::Bits fp4_square(typename L::Bits magnitude,
                                                          typename L::Bits factor) {
  using Bits = typename L::Bits;
  const auto splat = [](float x) { return L::splat(std::bit_cast<std::uint32_t>(x)); };
  const Bits u = L::fmul(magnitude, factor);
  const Bits big = L::fmul(L::fmax(u, splat(1.25F)), splat(0x1p22F - 1.0F));
  const Bits rounded = L::fmin(L::fsub(L::fadd(u, big), big), splat(6.0F));
  const Bits error = L::fsub(u, rounded);
  return L::fmul(error, error);
}

// Four factors at a time: there is room for a multiple of four. Two: kTogether is what `count` is.
template <typename L, int kTogether = 4, bool kWeighted = false>
[[gnu::always_inline]] inline void fp4_squares_together(const float* x, const float* weights,
                                                        std::int64_t n, const float* factors,
                                                        int count, float* sums) {
  using Bits = typename L::Bits;
  constexpr int kVectors = 16 / L::kLanes;
  const Bits magnitude = L::splat(0x7FFFFFFFu);
  for (int at = 0; at < count; at += kTogether) {
    Bits factor[kTogether], sum[kTogether][kVectors];
#pragma GCC unroll 4
    for (int f = 0; f < kTogether; ++f)
      factor[f] = L::splat(std::bit_cast<std::uint32_t>(factors[at + f]));
    const auto square = [&](std::int64_t i, int v, int f) __attribute__((always_inline)) {
      const Bits plain =
          fp4_square<L>(L::band(L::load_words(x + i + v * L::kLanes), magnitude), factor[f]);
      if constexpr (kWeighted) return L::fmul(plain, L::load_words(weights + i + v * L::kLanes));
      return plain;
    };
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 4
      for (int f = 0; f < kTogether; ++f) sum[f][v] = square(0, v, f);
    for (std::int64_t i = 16; i < n; i += 16)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 4
        for (int f = 0; f < kTogether; ++f) sum[f][v] = L::fadd(sum[f][v], square(i, v, f));
    __m128 four[kTogether];
#pragma GCC unroll 4
    for (int f = 0; f < kTogether; ++f) four[f] = L::four_sums(sum[f]);
    constexpr int kLast = kTogether - 2;
    _mm_storeu_ps(sums + at, _mm_hadd_ps(_mm_hadd_ps(four[0], four[1]),
                                         _mm_hadd_ps(four[kLast], four[kLast + 1])));
  }
}

// Null weights: all are one.
template <typename L>
[[gnu::always_inline]] inline void fp4_squares_wide(const float* x, const float* weights,
                                                    std::int64_t n, const float* factors, int count,
                                                    float* sums) {
  if (weights != nullptr)
    return fp4_squares_together<L, 4, true>(x, weights, n, factors, count, sums);
  fp4_squares_together<L>(x, nullptr, n, factors, count, sums);
}

}  // namespace
}  // namespace octavo::cpu
