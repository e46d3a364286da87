// Types of masks and intrinsics of AVX-512 that the kernels use and SIMDe 0.7.4 (Debian 12) lacks.
// Each is its definition in Intel's manual, element by element. A later SIMDe that has one defines
// a macro of its name: it is taken away here, and this one is used.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

using __mmask8 = simde__mmask8;
using __mmask16 = simde__mmask16;
using __mmask32 = simde__mmask32;
using __mmask64 = simde__mmask64;

#undef _mm256_maskz_loadu_epi8
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtepi8_epi16
#undef _mm512_mask_storeu_epi8
#undef _mm512_multishift_epi64_epi8
#undef _mm512_srai_epi32
#undef _mm_maskz_loadu_epi8
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtepu8_epi16
#undef _mm512_cvtps_epi32
#undef _mm512_i32gather_ps
#undef _mm512_madd_epi16
#undef _mm512_mask_loadu_epi8
#undef _mm512_reduce_max_ps
#undef _mm512_stream_si512
#undef _mm512_cvtps_pd
#undef _mm512_cvtps_ph
#undef _mm512_cvttps_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_mask_storeu_epi32
#undef _mm512_maskz_loadu_epi16
#undef _mm512_maskz_loadu_epi32
#undef _mm512_maskz_loadu_epi8
#undef _mm512_reduce_add_ps
#undef _mm512_reduce_max_epu32

namespace octavo::simde {

template <typename T, typename Vector>
auto elements(const Vector& vector) {
  return std::bit_cast<std::array<T, sizeof(Vector) / sizeof(T)>>(vector);
}

// Each element of type From to one of type To, by C++'s conversion.
template <typename To, typename Result, typename From, typename Vector>
Result converted(const Vector& vector) {
  const auto from = elements<From>(vector);
  std::array<To, sizeof(Result) / sizeof(To)> to;
  static_assert(to.size() == from.size());
  std::ranges::transform(from, to.begin(), [](From x) { return static_cast<To>(x); });
  return std::bit_cast<Result>(to);
}

// What the mask leaves out is not touched.
template <typename T, typename Result, typename Mask>
Result loaded(Mask mask, const void* from) {
  std::array<T, sizeof(Result) / sizeof(T)> to{};
  for (std::size_t i = 0; i < to.size(); ++i)
    if ((mask >> i & 1) != 0)
      std::memcpy(&to[i], static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
  return std::bit_cast<Result>(to);
}

// The two halves of a vector, combined until one element is left: the order of x86's compilers.
template <typename T, std::size_t kCount, typename Combine>
T reduced(std::array<T, kCount> all, const Combine& combine) {
  for (std::size_t half = kCount / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) all[i] = combine(all[i], all[i + half]);
  return all[0];
}

}  // namespace octavo::simde

static inline __m128i _mm512_cvtepi32_epi8(__m512i a) {
  return octavo::simde::converted<std::uint8_t, __m128i, std::uint32_t>(a);
}
static inline __m256i _mm512_cvtepi32_epi16(__m512i a) {
  return octavo::simde::converted<std::uint16_t, __m256i, std::uint32_t>(a);
}
static inline __m512i _mm512_cvtepu8_epi32(__m128i a) {
  return octavo::simde::converted<std::uint32_t, __m512i, std::uint8_t>(a);
}
static inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
  return octavo::simde::converted<std::uint32_t, __m512i, std::uint16_t>(a);
}
static inline __m512 _mm512_cvtepi32_ps(__m512i a) {
  return octavo::simde::converted<float, __m512, std::int32_t>(a);
}
static inline __m512d _mm512_cvtps_pd(__m256 a) {
  return octavo::simde::converted<double, __m512d, float>(a);
}
static inline __m512 _mm512_cvtph_ps(__m256i a) {
  return octavo::simde::converted<float, __m512, __fp16>(a);
}
// Rounds as FPCR says, which the kernels set; they ask for nearest even here too.
static inline __m256i _mm512_cvtps_ph(__m512 a, int) {
  return octavo::simde::converted<__fp16, __m256i, float>(a);
}
static inline __m256 _mm512_extractf32x8_ps(__m512 a, int half) {
  return octavo::simde::elements<__m256>(a)[static_cast<std::size_t>(half)];
}
static inline __m512i _mm512_maskz_loadu_epi32(__mmask16 mask, const void* from) {
  return octavo::simde::loaded<std::uint32_t, __m512i>(mask, from);
}
// For numbers within 32 bits.
static inline __m512i _mm512_cvttps_epi32(__m512 a) {
  return octavo::simde::converted<std::int32_t, __m512i, float>(a);
}
static inline __m512i _mm512_maskz_loadu_epi8(__mmask64 mask, const void* from) {
  return octavo::simde::loaded<std::uint8_t, __m512i>(mask, from);
}
static inline __m512i _mm512_maskz_loadu_epi16(__mmask32 mask, const void* from) {
  return octavo::simde::loaded<std::uint16_t, __m512i>(mask, from);
}
static inline __m256i _mm256_maskz_loadu_epi8(__mmask32 mask, const void* from) {
  return octavo::simde::loaded<std::uint8_t, __m256i>(mask, from);
}
static inline void _mm512_mask_storeu_epi32(void* to, __mmask16 mask, __m512i a) {
  const auto from = octavo::simde::elements<std::uint32_t>(a);
  for (std::size_t i = 0; i < from.size(); ++i)
    if ((mask >> i & 1) != 0) std::memcpy(static_cast<std::byte*>(to) + 4 * i, &from[i], 4);
}
static inline float _mm512_reduce_add_ps(__m512 a) {
  return octavo::simde::reduced(octavo::simde::elements<float>(a),
                                [](float x, float y) { return x + y; });
}
static inline unsigned _mm512_reduce_max_epu32(__m512i a) {
  return octavo::simde::reduced(octavo::simde::elements<std::uint32_t>(a),
                                [](std::uint32_t x, std::uint32_t y) { return std::max(x, y); });
}
static inline __m512i _mm512_cvtepi8_epi16(__m256i a) {
  return octavo::simde::converted<std::int16_t, __m512i, std::int8_t>(a);
}
static inline __m512i _mm512_srai_epi32(__m512i a, unsigned count) {
  auto all = octavo::simde::elements<std::int32_t>(a);
  for (std::int32_t& x : all) x >>= count;
  return std::bit_cast<__m512i>(all);
}
// Each byte is eight bits of its 64-bit element, from the bit that the control says on, around.
static inline __m512i _mm512_multishift_epi64_epi8(__m512i control, __m512i a) {
  auto shifts = octavo::simde::elements<std::uint8_t>(control);
  const auto from = octavo::simde::elements<std::uint64_t>(a);
  for (std::size_t i = 0; i < shifts.size(); ++i)
    shifts[i] = static_cast<std::uint8_t>(std::rotr(from[i / 8], shifts[i] & 63));
  return std::bit_cast<__m512i>(shifts);
}
static inline void _mm512_mask_storeu_epi8(void* to, __mmask64 mask, __m512i a) {
  const auto from = octavo::simde::elements<std::uint8_t>(a);
  for (std::size_t i = 0; i < from.size(); ++i)
    if ((mask >> i & 1) != 0) std::memcpy(static_cast<std::byte*>(to) + i, &from[i], 1);
}
static inline __m128i _mm_maskz_loadu_epi8(__mmask16 mask, const void* from) {
  return octavo::simde::loaded<std::uint8_t, __m128i>(mask, from);
}
static inline __m512i _mm512_mask_loadu_epi8(__m512i otherwise, __mmask64 mask, const void* from) {
  auto all = octavo::simde::elements<std::uint8_t>(otherwise);
  for (std::size_t i = 0; i < all.size(); ++i)
    if ((mask >> i & 1) != 0) std::memcpy(&all[i], static_cast<const std::byte*>(from) + i, 1);
  return std::bit_cast<__m512i>(all);
}
static inline __m512i _mm512_cvtepu8_epi16(__m256i a) {
  return octavo::simde::converted<std::uint16_t, __m512i, std::uint8_t>(a);
}
// To nearest even; what has no such integer, NaN too, becomes the least one.
static inline __m512i _mm512_cvtps_epi32(__m512 a) {
  const auto from = octavo::simde::elements<float>(a);
  std::array<std::int32_t, 16> to;
  std::ranges::transform(from, to.begin(), [](float x) {
    const float rounded = std::nearbyint(x);
    return rounded >= -0x1p31F && rounded < 0x1p31F ? static_cast<std::int32_t>(rounded)
                                                    : INT32_MIN;
  });
  return std::bit_cast<__m512i>(to);
}
// Sums of two products; modulo 2^32.
static inline __m512i _mm512_madd_epi16(__m512i a, __m512i b) {
  const auto x = octavo::simde::elements<std::int16_t>(a),
             y = octavo::simde::elements<std::int16_t>(b);
  std::array<std::uint32_t, 16> sums;
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] = static_cast<std::uint32_t>(x[2 * i] * y[2 * i]) +
              static_cast<std::uint32_t>(x[2 * i + 1] * y[2 * i + 1]);
  return std::bit_cast<__m512i>(sums);
}
static inline __m512 _mm512_i32gather_ps(__m512i index, const void* from, int scale) {
  const auto at = octavo::simde::elements<std::int32_t>(index);
  std::array<float, 16> to;
  for (std::size_t i = 0; i < to.size(); ++i)
    std::memcpy(&to[i], static_cast<const std::byte*>(from) + std::int64_t{at[i]} * scale, 4);
  return std::bit_cast<__m512>(to);
}
static inline float _mm512_reduce_max_ps(__m512 a) {
  return octavo::simde::reduced(octavo::simde::elements<float>(a),
                                [](float x, float y) { return x > y ? x : y; });
}
static inline void _mm512_stream_si512(void* to, __m512i a) { std::memcpy(to, &a, sizeof a); }
