// The largest magnitude of contiguous values, as the bits of an f32: magnitudes are ordered like
// integers, with Inf and NaN above all else.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "octavo/backend/cpu/masks.h"
#include "octavo/scale/scale_spec.h"

namespace octavo::cpu {

// Magnitudes beyond this bit pattern do not count.
inline constexpr std::uint32_t kAllCount = 0xFFFFFFFFu;
inline std::uint32_t counted_up_to(AmaxOf of) {
  return of == AmaxOf::all ? kAllCount : of == AmaxOf::not_nan ? 0x7F800000u : 0x7F7FFFFFu;
}

// fabs instead of a mask: on ARM the mask would be an immediate, which costs a copy of the source.
inline std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(__builtin_fabsf(x));
}

// f64 is rounded up to f32; finite stays finite.
inline std::uint32_t magnitude_bits(double x) {
  constexpr std::uint32_t kMost = 0x7F7FFFFFu, kSign = 0x80000000u;
  const std::uint64_t magnitude = std::bit_cast<std::uint64_t>(x) & ~(std::uint64_t{1} << 63);
  const auto exact = std::bit_cast<double>(magnitude);
  const auto nearest = static_cast<float>(exact);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest) & ~kSign;
  const std::uint32_t rounded =
      bits + static_cast<std::uint32_t>(static_cast<double>(nearest) < exact);
  const bool finite = magnitude < (std::uint64_t{0x7FF} << 52);
  return select(mask_of(finite), smaller(rounded, kMost), bits);
}

inline std::uint32_t counted_bits(std::uint32_t bits, std::uint32_t limit) {
  return bits & mask_of(bits <= limit);
}

template <typename Real>
[[gnu::always_inline]] inline std::uint32_t amax_run(const Real* x, std::int64_t n,
                                                     std::uint32_t limit, std::uint32_t most = 0) {
  if (limit == kAllCount) {
    for (std::int64_t i = 0; i < n; ++i) most = std::max(most, magnitude_bits(x[i]));
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      most = std::max(most, counted_bits(magnitude_bits(x[i]), limit));
  }
  return most;
}

// bf16 as it is: half as many bits to look at.
[[gnu::always_inline]] inline std::uint32_t amax_run(const std::uint16_t* bf16, std::int64_t n,
                                                     std::uint32_t limit, std::uint32_t most = 0) {
  const auto limit16 = static_cast<std::uint16_t>(limit >> 16);
  auto most16 = static_cast<std::uint16_t>(most >> 16);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = static_cast<std::uint16_t>(bf16[i] & 0x7FFF);
    const auto keep = static_cast<std::uint16_t>(0 - static_cast<int>(bits <= limit16));
    most16 = std::max(most16, static_cast<std::uint16_t>(bits & keep));
  }
  return static_cast<std::uint32_t>(most16) << 16;
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
