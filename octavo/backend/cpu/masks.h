// Branch-free selects by masks, for conditions that depend on data. Always inlined: objects of
// several instruction sets may include this.
#pragma once

#include <bit>
#include <cstdint>

namespace octavo::cpu {

// All ones where true.
[[gnu::always_inline]] inline std::uint32_t mask_of(bool condition) {
  return 0u - static_cast<std::uint32_t>(condition);
}
[[gnu::always_inline]] inline std::uint32_t select(std::uint32_t mask, std::uint32_t a,
                                                   std::uint32_t b) {
  return (mask & a) | (~mask & b);
}

[[gnu::always_inline]] inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
  return select(mask_of(a > b), a, b);
}
[[gnu::always_inline]] inline std::uint32_t smaller(std::uint32_t a, std::uint32_t b) {
  return select(mask_of(a < b), a, b);
}

// For f32 that are not negative and not NaN: they are ordered like their bits.
[[gnu::always_inline]] inline float larger(float a, float b) {
  return std::bit_cast<float>(
      larger(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}
[[gnu::always_inline]] inline float smaller(float a, float b) {
  return std::bit_cast<float>(
      smaller(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}

}  // namespace octavo::cpu
