// The amax of contiguous values, as the bits of an f32: magnitudes are ordered like integers, with
// Inf and NaN above all else.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "octavo/backend/cpu/masks.h"
#include "octavo/scale/scale_spec.h"

namespace octavo::cpu {

// Magnitudes above this bit pattern are ignored.
inline constexpr std::uint32_t kAllCount = 0xFFFFFFFFu, kFiniteCount = 0x7F7FFFFFu;
inline std::uint32_t counted_up_to(AmaxOf of) {
  return of == AmaxOf::all ? kAllCount : of == AmaxOf::not_nan ? 0x7F800000u : kFiniteCount;
}

// fabs instead of a mask: on ARM the mask would be an immediate, which costs a copy of the source.
inline std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(__builtin_fabsf(x));
}

// f64 is rounded up to f32; finite stays finite.
inline std::uint32_t magnitude_bits(double x) {
  constexpr std::uint32_t kMax = 0x7F7FFFFFu, kSign = 0x80000000u;
  const std::uint64_t magnitude = std::bit_cast<std::uint64_t>(x) & ~(std::uint64_t{1} << 63);
  const auto exact = std::bit_cast<double>(magnitude);
  const auto nearest = static_cast<float>(exact);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest) & ~kSign;
  const std::uint32_t rounded =
      bits + static_cast<std::uint32_t>(static_cast<double>(nearest) < exact);
  const bool finite = magnitude < (std::uint64_t{0x7FF} << 52);
  return select(mask_of(finite), smaller(rounded, kMax), bits);
}

inline std::uint32_t counted_bits(std::uint32_t bits, std::uint32_t limit) {
  return bits & mask_of(bits <= limit);
}

// The maximum of n numbers, in several independent dependency chains.
template <typename Number, typename NumberAt>
[[gnu::always_inline]] inline Number largest_of(std::int64_t n, Number most, NumberAt&& at) {
  constexpr std::int64_t kLanes = 64 / sizeof(Number);
  std::int64_t i = 0;
  if (n >= kLanes) {
    Number lanes[kLanes];
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = at(j);
    for (i = kLanes; i + kLanes <= n; i += kLanes)
      for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = std::max(lanes[j], at(i + j));
    for (std::int64_t j = 0; j < kLanes; ++j) most = std::max(most, lanes[j]);
  }
  for (; i < n; ++i) most = std::max(most, at(i));
  return most;
}

// The largest of n magnitudes up to a limit; kExponentBit is the lowest exponent bit.
template <typename Bits, int kExponentBit, typename MagnitudeAt>
[[gnu::always_inline]] inline Bits largest_magnitude(std::int64_t n, std::uint32_t limit, Bits most,
                                                     MagnitudeAt&& magnitude) {
  if (limit == kAllCount) return largest_of(n, most, magnitude);
  if (limit == kFiniteCount) {
    // With one added to the exponent, Inf and NaN become negative, and a signed maximum ignores
    // them.
    using Signed = std::make_signed_t<Bits>;
    constexpr auto kUp = static_cast<Bits>(Bits{1} << kExponentBit);
    const auto moved = [&](std::int64_t i) {
      return static_cast<Signed>(static_cast<Bits>(magnitude(i) + kUp));
    };
    const auto start = static_cast<Signed>(static_cast<Bits>(most + kUp));
    return static_cast<Bits>(static_cast<Bits>(largest_of(n, start, moved)) - kUp);
  }
  const auto top = static_cast<Bits>(limit >> (32 - 8 * sizeof(Bits)));
  return largest_of(n, most, [&](std::int64_t i) {
    const Bits bits = magnitude(i);
    return static_cast<Bits>(bits & mask_of(bits <= top));
  });
}

template <typename Real>
[[gnu::always_inline]] inline std::uint32_t amax_run(const Real* x, std::int64_t n,
                                                     std::uint32_t limit, std::uint32_t most = 0) {
  return largest_magnitude<std::uint32_t, 23>(n, limit, most,
                                              [&](std::int64_t i) { return magnitude_bits(x[i]); });
}

// bf16 directly: half as many bits to read.
[[gnu::always_inline]] inline std::uint32_t amax_run(const std::uint16_t* bf16, std::int64_t n,
                                                     std::uint32_t limit, std::uint32_t most = 0) {
  const auto found = largest_magnitude<std::uint16_t, 7>(
      n, limit, static_cast<std::uint16_t>(most >> 16),
      [&](std::int64_t i) { return static_cast<std::uint16_t>(bf16[i] & 0x7FFF); });
  return static_cast<std::uint32_t>(found) << 16;
}

// amax[t] becomes the maximum of itself and the amax of tile t of `width` elements.
template <typename Element>
inline void amax_of_tiles(const Element* x, std::int64_t n, std::int64_t width, std::uint32_t limit,
                          std::uint32_t* amax) {
  // Widths known at compile time are unrolled.
  const auto fixed = [&]<std::int64_t kWidth>() {
    std::int64_t t = 0;
    for (; (t + 1) * kWidth <= n; ++t) amax[t] = amax_run(x + t * kWidth, kWidth, limit, amax[t]);
    if (t * kWidth < n) amax[t] = amax_run(x + t * kWidth, n - t * kWidth, limit, amax[t]);
  };
  if (width == 16) return fixed.template operator()<16>();
  if (width == 32) return fixed.template operator()<32>();
  for (std::int64_t t = 0; t * width < n; ++t)
    amax[t] = amax_run(x + t * width, std::min(width, n - t * width), limit, amax[t]);
}

}  // namespace octavo::cpu
