// The magnitude of a rank near the top, in several tiles at once: a vector has one value of each
// tile. The largest so far are kept in registers, in order; a value moves what is smaller down by
// one, with a minimum and a maximum for each rank, all independent of each other.
//
//   top[j] = max(top[j], min(x, top[j - 1]))
//
// 2 rank - 1 operations for a vector of f32 or of bf16, whose order is that of their bits; and two
// or three for transposing them, more where vectors are wider than 128 bits. Magnitudes as signed
// integers, which every processor compares. No branch or address depends on data.
//
// Everything here has internal linkage on purpose: each instruction set compiles it for itself, in
// vectors of kBytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {
namespace {

template <typename Lane, int kBytes>
struct Vectors {
  static constexpr int kLanes = kBytes / sizeof(Lane);
  static constexpr int kShift = 32 - 8 * sizeof(Lane);  // from a magnitude to the bits of an f32
  static constexpr auto kMagnitude = static_cast<Lane>((1u << (8 * sizeof(Lane) - 1)) - 1);
  using Vector [[gnu::vector_size(kBytes)]] = Lane;

  template <std::size_t... kI>
  [[gnu::always_inline]] static void zip(Vector a, Vector b, Vector& low, Vector& high,
                                         std::index_sequence<kI...>) {
    low = __builtin_shufflevector(a, b, (kI % 2 * kLanes + kI / 2)...);
    high = __builtin_shufflevector(a, b, (kI % 2 * kLanes + kLanes / 2 + kI / 2)...);
  }
  // Vectors zipped with those half of all behind them, until they are transposed.
  [[gnu::always_inline]] static void transpose(Vector (&v)[kLanes]) {
    for (int step = 1; step < kLanes; step *= 2) {
      Vector zipped[kLanes];
      for (int i = 0; i < kLanes / 2; ++i)
        zip(v[i], v[i + kLanes / 2], zipped[2 * i], zipped[2 * i + 1],
            std::make_index_sequence<kLanes>{});
      for (int i = 0; i < kLanes; ++i) v[i] = zipped[i];
    }
  }
};

// The largest kRank values of each lane.
template <typename Lane, int kBytes, int kRank>
struct Largest {
  using Vector = typename Vectors<Lane, kBytes>::Vector;
  Vector top[kRank] = {};

  [[gnu::always_inline]] void insert(Vector x) {
    for (int j = kRank - 1; j > 0; --j) {
      const Vector moved = x < top[j - 1] ? x : top[j - 1];
      top[j] = top[j] > moved ? top[j] : moved;
    }
    top[0] = top[0] > x ? top[0] : x;
  }
};

// As many tiles as there are lanes in kGroups vectors: few ranks are a short chain of operations,
// and two chains are interleaved.
template <typename Lane, int kBytes, int kRank, int kGroups>
void rank_group(const RankedTiles& job, std::int64_t first, std::uint32_t* found) {
  using V = Vectors<Lane, kBytes>;
  using Vector = typename V::Vector;
  constexpr int kLanes = V::kLanes, kTiles = kLanes * kGroups;
  const auto* values = static_cast<const Lane*>(job.values);
  const auto tile = [&](int t) { return std::min(first + t, job.tiles - 1) * job.cols; };
  Largest<Lane, kBytes, kRank> largest[kGroups];
  for (std::int64_t row = 0; row < job.rows; ++row, values += job.row_pitch) {
    std::int64_t i = 0;
    for (; i + kLanes <= job.cols; i += kLanes) {
      Vector v[kGroups][kLanes];
      for (int g = 0; g < kGroups; ++g) {
        for (int t = 0; t < kLanes; ++t) {
          std::memcpy(&v[g][t], values + tile(g * kLanes + t) + i, sizeof(Vector));
          v[g][t] &= V::kMagnitude;
        }
        V::transpose(v[g]);
      }
      for (int k = 0; k < kLanes; ++k)
        for (int g = 0; g < kGroups; ++g) largest[g].insert(v[g][k]);
    }
    for (; i < job.cols; ++i) {
      for (int g = 0; g < kGroups; ++g) {
        Vector x;
        for (int t = 0; t < kLanes; ++t)
          x[t] = static_cast<Lane>(values[tile(g * kLanes + t) + i] & V::kMagnitude);
        largest[g].insert(x);
      }
    }
  }
  for (int t = 0; t < kTiles && first + t < job.tiles; ++t)
    found[first + t] = static_cast<std::uint32_t>(largest[t / kLanes].top[kRank - 1][t % kLanes])
                       << V::kShift;
}

template <typename Lane, int kBytes, int kRank>
void rank_all(const RankedTiles& job, std::uint32_t* found) {
  constexpr int kGroups = kRank <= 4 ? 2 : 1, kTiles = Vectors<Lane, kBytes>::kLanes * kGroups;
  for (std::int64_t first = 0; first < job.tiles; first += kTiles)
    rank_group<Lane, kBytes, kRank, kGroups>(job, first, found);
}

template <typename Lane, int kBytes, std::size_t... kI>
constexpr std::array<RankTiles, sizeof...(kI)> by_rank(std::index_sequence<kI...>) {
  return {rank_all<Lane, kBytes, static_cast<int>(kI) + 1>...};
}

template <int kBytes>
void rank_lanes(const RankedTiles& job, std::uint32_t* found) {
  static constexpr auto kOfF32 =
      by_rank<std::int32_t, kBytes>(std::make_index_sequence<kMaxRanks>{});
  static constexpr auto kOfBf16 =
      by_rank<std::int16_t, kBytes>(std::make_index_sequence<kMaxRanks>{});
  const auto& kernels = job.dtype == DType::bf16 ? kOfBf16 : kOfF32;
  kernels[static_cast<std::size_t>(job.rank - 1)](job, found);
}

}  // namespace
}  // namespace octavo::cpu
