// Vector operations of lane_sums.cc: `plain` with the vector extensions of GCC and Clang, and
// `neon` where one instruction replaces several. Both give the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace octavo::lanes {

using Floats = float __attribute__((vector_size(16)));
using Words = std::uint32_t __attribute__((vector_size(16)));
using Halves = std::uint16_t __attribute__((vector_size(16)));
using SignedHalves = std::int16_t __attribute__((vector_size(16)));
using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Longs = std::uint64_t __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(16)));
using FourDoubles = double __attribute__((vector_size(32)));

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

struct TwoFloats {
  Floats low, high;
};
struct TwoHalves {
  Halves low, high;
};

// Each bf16 between 16 zeros and its neighbour is an f32.
inline TwoFloats widened(Halves halves) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  constexpr Halves kZeros = {};
  return {
      reinterpret_cast<Floats>(__builtin_shufflevector(kZeros, halves, 0, 8, 1, 9, 2, 10, 3, 11)),
      reinterpret_cast<Floats>(
          __builtin_shufflevector(kZeros, halves, 4, 12, 5, 13, 6, 14, 7, 15))};
}

namespace plain {

// Sign, exponent and mantissa of codes to where a bf16 has its sign, the end of its exponent, and
// the beginning of its mantissa.
template <int kMantissa>
TwoHalves moved(Bytes codes) {
  constexpr Bytes kZeros = {};
  // The sign stays, what the shift makes of it beside the exponent goes.
  constexpr int kShift = kMantissa + 1;
  constexpr auto kKept = static_cast<std::int16_t>(0x8000 | 0x7F00 >> kShift);
  const auto low = reinterpret_cast<SignedHalves>(__builtin_shufflevector(
                 kZeros, codes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)),
             high = reinterpret_cast<SignedHalves>(__builtin_shufflevector(
                 kZeros, codes, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
  return {reinterpret_cast<Halves>((low >> kShift) & kKept),
          reinterpret_cast<Halves>((high >> kShift) & kKept)};
}

inline Floats distance(Floats a, Floats b) {
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(a - b) & 0x7FFFFFFFU);
}

// Rounded once where the processor has FMA: sums may differ in their last bits between
// architectures, and nowhere else.
inline Floats add_square(Floats sum, Floats x) {
#ifdef __FP_FAST_FMAF
  for (int i = 0; i < 4; ++i) sum[i] = __builtin_fmaf(x[i], x[i], sum[i]);
  return sum;
#else
  return sum + x * x;
#endif
}

}  // namespace plain

#if defined(__aarch64__)
namespace neon {

template <int kMantissa>
TwoHalves moved(Bytes codes) {
  constexpr int kShift = 7 - kMantissa;
  constexpr auto kKept = static_cast<std::uint16_t>(0x8000 | 0x7F << kShift);
  const auto bytes = reinterpret_cast<int8x16_t>(codes);
  return {reinterpret_cast<Halves>(vshll_n_s8(vget_low_s8(bytes), kShift)) & kKept,
          reinterpret_cast<Halves>(vshll_high_n_s8(bytes, kShift)) & kKept};
}

inline Floats distance(Floats a, Floats b) { return vabdq_f32(a, b); }

inline Floats add_square(Floats sum, Floats x) { return vfmaq_f32(sum, x, x); }

}  // namespace neon
using neon::add_square;
using neon::distance;
using neon::moved;
#else
using plain::add_square;
using plain::distance;
using plain::moved;
#endif

}  // namespace octavo::lanes
