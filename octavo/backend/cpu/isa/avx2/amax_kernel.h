// Amaxes as the bits of f32: of neighbouring tiles of sixteen values, and of a run. bf16 stays in
// 16-bit lanes.
#pragma once

#include <cstring>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/isa/avx2/encode_lanes.h"
#include "octavo/backend/cpu/isa/avx2/memory_ahead.h"

namespace octavo::cpu {
namespace {

// Whole vectors of tiles: the driver does the rest.
template <typename L, DType kSource>
std::int64_t raise_by_tiles(const void* values, std::int64_t tiles, std::uint32_t* amax) {
  constexpr std::int64_t kStep = kFp4Tile * element_bytes(kSource);
  const auto* from = static_cast<const std::byte*>(values);
  std::int64_t t = 0;
  for (; t + L::kLanes <= tiles; t += L::kLanes, from += L::kLanes * kStep) {
    const auto found = L::template amaxes<kSource, kFp4Tile>(from);
    L::store_words(L::max(found, L::load_words(amax + t)), amax + t);
  }
  return t;
}

template <typename L>
std::int64_t amax16(DType dtype, const void* values, std::int64_t tiles, std::uint32_t* amax) {
  if (dtype == DType::f32) return raise_by_tiles<L, DType::f32>(values, tiles, amax);
  if (dtype == DType::bf16) return raise_by_tiles<L, DType::bf16>(values, tiles, amax);
  return 0;
}

// Four chains of maxima, because one alone would wait for itself.
template <typename L, bool kBf16>
std::uint32_t amax_of(const std::byte* from, std::int64_t bytes) {
  constexpr std::int64_t kStep = 4 * L::kLanes * 4;
  const auto magnitude = L::splat(kBf16 ? 0x7FFF7FFFu : kF32Magnitude);
  const auto larger_of = [](auto a, auto b) __attribute__((always_inline)) {
    return kBf16 ? L::max_halves(a, b) : L::max(a, b);
  };
  typename L::Bits most[4] = {L::splat(0), L::splat(0), L::splat(0), L::splat(0)};
  const auto step = [&](const std::byte* at) __attribute__((always_inline)) {
    prefetch_ahead<kStep>(at);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      most[i] = larger_of(most[i], L::band(L::load_words(at + i * L::kLanes * 4), magnitude));
  };
  for (; bytes >= kStep; bytes -= kStep, from += kStep) step(from);
  if (bytes > 0) {
    alignas(64) std::byte staged[kStep] = {};
    std::memcpy(staged, from, static_cast<std::size_t>(bytes));
    step(staged);
  }
  auto all = larger_of(larger_of(most[0], most[1]), larger_of(most[2], most[3]));
  if constexpr (kBf16) all = L::max_halves(all, L::shift_left(all, 16));
  return L::largest(all) & (kBf16 ? 0xFFFF0000u : 0xFFFFFFFFu);
}

template <typename L>
std::uint32_t amax_of_span(DType dtype, const void* values, std::int64_t n) {
  const auto* from = static_cast<const std::byte*>(values);
  return dtype == DType::bf16 ? amax_of<L, true>(from, n * 2) : amax_of<L, false>(from, n * 4);
}

}  // namespace
}  // namespace octavo::cpu
