// f32 to bf16 over lanes, and back: to nearest even by integer arithmetic; NaN becomes quiet and
// keeps its sign. Six operations a vector.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "octavo/tensor/dtype.h"

namespace octavo::cpu {
namespace {

template <typename L>
void narrow_bf16(const float* values, std::uint16_t* out, std::int64_t n) {
  const auto half = L::splat(0x7FFFu), one = L::splat(1), sign = L::splat(0x80000000u),
             magnitude = L::splat(0x7FFFFFFFu), inf = L::splat(0x7F800000u),
             quiet = L::splat(0x7FC00000u);
  const auto rounded = [&](const float* from) __attribute__((always_inline)) {
    const auto bits = L::load_words(from);
    const auto up = L::add(L::add(bits, half), L::band(L::shift_right(bits, 16), one));
    const auto nan = L::above(L::band(bits, magnitude), inf);
    return L::select(nan, L::bor(L::band(bits, sign), quiet), up);
  };
  std::int64_t done = 0;
  for (; done + L::kLanes <= n; done += L::kLanes)
    L::template store<DType::bf16>(rounded(values + done),
                                   reinterpret_cast<std::byte*>(out + done));
  if (done == n) return;
  alignas(64) float staged[L::kLanes] = {};
  alignas(64) std::uint16_t some[L::kLanes];
  for (std::int64_t i = done; i < n; ++i) staged[i - done] = values[i];
  L::template store<DType::bf16>(rounded(staged), reinterpret_cast<std::byte*>(some));
  for (std::int64_t i = done; i < n; ++i) out[i] = some[i - done];
}

template <typename L>
void widen_bf16_lanes(const void* values, float* out, std::int64_t n) {
  const auto* from = static_cast<const std::byte*>(values);
  std::int64_t done = 0;
  for (; done + 2 * L::kLanes <= n; done += 2 * L::kLanes) {
    L::store_words(L::template load<DType::bf16>(from + 2 * done), out + done);
    L::store_words(L::template load<DType::bf16>(from + 2 * (done + L::kLanes)),
                   out + done + L::kLanes);
  }
  for (; done < n; ++done) {
    std::uint16_t half = 0;
    std::memcpy(&half, from + 2 * done, sizeof half);
    out[done] = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
  }
}

}  // namespace
}  // namespace octavo::cpu
