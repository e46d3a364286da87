// The magnitude of a rank near the top, in several tiles at once: a vector has one value of each
// tile. Values are taken in chunks of P vectors, the power of two from the rank on. A chunk is
// sorted, and merged with the P largest so far, both in descending order:
//
//   top[i] = max(top[i], chunk[P - 1 - i])
//
// are the P largest of both in a bitonic order, which log2(P) rounds of exchanges sort. Minima and
// maxima for a vector, of f32 or of bf16, whose order is that of their bits:
//
//   P                           1     2     4     8     16
//   sorting a chunk             0     1    2.5   4.75  7.9
//   merging                     1     2     3     4     5
//
// and five or six operations that load, transpose and take signs off; an insertion into sorted
// registers would take 2 rank - 1. Magnitudes are signed integers, which every processor compares.
// No branch or address depends on data.
//
// Everything here has internal linkage on purpose: each instruction set compiles it for itself, in
// vectors of kBytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {
namespace {

// Exchanges that leave the larger value in the first place.
struct Network {
  struct Exchange {
    int first, second;
  };
  std::array<Exchange, 63> steps{};
  int count = 0;

  constexpr void add(int first, int second) {
    steps[static_cast<std::size_t>(count++)] = {first, second};
  }
};

// Batcher's odd-even merge sort of n values, a power of two up to sixteen.
constexpr Network sorting_network(int n) {
  Network network;
  for (int merged = 1; merged < n; merged *= 2)
    for (int apart = merged; apart >= 1; apart /= 2)
      for (int j = apart % merged; j + apart < n; j += 2 * apart)
        for (int i = j; i < std::min(j + apart, n - apart); ++i)
          if (i / (2 * merged) == (i + apart) / (2 * merged)) network.add(i, i + apart);
  return network;
}

// Sorts n values in a bitonic order.
constexpr Network bitonic_network(int n) {
  Network network;
  for (int apart = n / 2; apart >= 1; apart /= 2)
    for (int i = 0; i < n; ++i)
      if ((i & apart) == 0) network.add(i, i + apart);
  return network;
}

template <int kCount>
inline constexpr Network kSorting = sorting_network(kCount);
template <int kCount>
inline constexpr Network kBitonic = bitonic_network(kCount);

template <typename Lane, int kBytes>
struct Vectors {
  static constexpr int kLanes = kBytes / sizeof(Lane);  // tiles
  // Values of a tile that are loaded together. Transposing stays within 128 bits: a shuffle across
  // them takes three times as long.
  static constexpr int kRun = 16 / sizeof(Lane);
  static constexpr int kShift = 32 - 8 * sizeof(Lane);  // from a magnitude to the bits of an f32
  static constexpr auto kMagnitude = static_cast<Lane>((1u << (8 * sizeof(Lane) - 1)) - 1);
  using Run [[gnu::vector_size(16)]] = Lane;
  using Vector [[gnu::vector_size(kBytes)]] = Lane;

  // Neighbouring values of tiles kRun apart, side by side.
  [[gnu::always_inline]] static Vector load(const Lane* from, std::int64_t tile_pitch) {
    static_assert(kBytes == 16 || kBytes == 32);
    Run low;
    std::memcpy(&low, from, sizeof(low));
    if constexpr (kBytes == 16) {
      return low;
    } else {
      Run high;
      std::memcpy(&high, from + kRun * tile_pitch, sizeof(high));
      return join(low, high, std::make_index_sequence<kLanes>{});
    }
  }
  // Each tile's values into a lane of its own: kRun vectors.
  [[gnu::always_inline]] static void transpose(Vector (&v)[kRun]) {
    for (int step = 1; step < kRun; step *= 2) {
      Vector zipped[kRun];
      for (int i = 0; i < kRun / 2; ++i) {
        zipped[2 * i] = zip<0>(v[i], v[i + kRun / 2], std::make_index_sequence<kLanes>{});
        zipped[2 * i + 1] =
            zip<kRun / 2>(v[i], v[i + kRun / 2], std::make_index_sequence<kLanes>{});
      }
      for (int i = 0; i < kRun; ++i) v[i] = zipped[i];
    }
  }

  template <const Network& kNetwork, std::size_t... kI>
  [[gnu::always_inline]] static void exchange([[maybe_unused]] Vector* v,
                                              std::index_sequence<kI...>) {
    (exchange(v[kNetwork.steps[kI].first], v[kNetwork.steps[kI].second]), ...);
  }
  template <const Network& kNetwork>
  [[gnu::always_inline]] static void apply(Vector* v) {
    exchange<kNetwork>(v, std::make_index_sequence<static_cast<std::size_t>(kNetwork.count)>{});
  }
  [[gnu::always_inline]] static Vector larger(Vector a, Vector b) { return a > b ? a : b; }

 private:
  template <std::size_t... kI>
  [[gnu::always_inline]] static Vector join(Run low, Run high, std::index_sequence<kI...>) {
    return __builtin_shufflevector(low, high, kI...);
  }
  // Of each 128 bits the half from kFrom on, interleaved.
  template <int kFrom, std::size_t... kI>
  [[gnu::always_inline]] static Vector zip(Vector a, Vector b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b,
                                   (kI % 2 * kLanes + kI / kRun * kRun + kFrom + kI % kRun / 2)...);
  }
  [[gnu::always_inline]] static void exchange(Vector& first, Vector& second) {
    const Vector smaller = first < second ? first : second;
    first = larger(first, second);
    second = smaller;
  }
};

// As many tiles as there are lanes, from `from` on; kTop is P.
template <typename Lane, int kBytes, int kTop>
[[gnu::always_inline]] inline void rank_together(const Lane* from, std::int64_t tile_pitch,
                                                 std::int64_t n,
                                                 typename Vectors<Lane, kBytes>::Vector* largest) {
  using V = Vectors<Lane, kBytes>;
  using Vector = typename V::Vector;
  constexpr int kRun = V::kRun, kStep = std::max(kRun, kTop);
  Vector top[kTop];
  std::copy_n(largest, kTop, top);
  for (std::int64_t done = 0; done < n; done += kStep, from += kStep) {
    Vector chunk[kStep];
#pragma GCC unroll 16
    for (int run = 0; run < kStep; run += kRun) {
      Vector v[kRun];
#pragma GCC unroll 8
      for (int t = 0; t < kRun; ++t)
        v[t] = V::load(from + t * tile_pitch + run, tile_pitch) & V::kMagnitude;
      V::transpose(v);
#pragma GCC unroll 8
      for (int i = 0; i < kRun; ++i) chunk[run + i] = v[i];
    }
#pragma GCC unroll 8
    for (int at = 0; at < kStep; at += kTop) {
      V::template apply<kSorting<kTop>>(chunk + at);
#pragma GCC unroll 16
      for (int i = 0; i < kTop; ++i) top[i] = V::larger(top[i], chunk[at + kTop - 1 - i]);
      V::template apply<kBitonic<kTop>>(top);
    }
  }
  std::copy_n(top, kTop, largest);
}

// What is short of tiles or of a step's values: zeros are no larger than any magnitude.
template <typename Lane, int kBytes, int kTop>
void rank_staged(const Lane* from, std::int64_t tile_pitch, std::int64_t tiles, std::int64_t n,
                 typename Vectors<Lane, kBytes>::Vector* top) {
  using V = Vectors<Lane, kBytes>;
  constexpr int kStep = std::max(V::kRun, kTop);
  alignas(32) Lane stage[static_cast<std::size_t>(V::kLanes * kStep)] = {};
  for (std::int64_t t = 0; t < tiles; ++t)
    std::memcpy(stage + t * kStep, from + t * tile_pitch,
                static_cast<std::size_t>(n) * sizeof(Lane));
  rank_together<Lane, kBytes, kTop>(stage, kStep, kStep, top);
}

template <typename Lane, int kBytes, int kTop>
void rank_all(const RankedTiles& job, std::uint32_t* found) {
  using V = Vectors<Lane, kBytes>;
  constexpr std::int64_t kLanes = V::kLanes, kStep = std::max(V::kRun, kTop);
  const auto* from = static_cast<const Lane*>(job.values);
  const std::int64_t whole = job.cols / kStep * kStep;
  for (std::int64_t first = 0; first < job.tiles; first += kLanes, from += kLanes * job.cols) {
    const std::int64_t tiles = std::min(kLanes, job.tiles - first);
    typename V::Vector top[kTop] = {};
    const std::int64_t direct = tiles == kLanes ? whole : 0;
    rank_together<Lane, kBytes, kTop>(from, job.cols, direct, top);
    for (std::int64_t at = direct; at < job.cols; at += kStep)
      rank_staged<Lane, kBytes, kTop>(from + at, job.cols, tiles, std::min(kStep, job.cols - at),
                                      top);
    const auto& ranked = top[job.rank - 1];
    for (std::int64_t t = 0; t < tiles; ++t)
      found[first + t] = static_cast<std::uint32_t>(ranked[t]) << V::kShift;
  }
}

template <typename Lane, int kBytes>
void rank_lanes_of(const RankedTiles& job, std::uint32_t* found) {
  static_assert(kMaxRanks == 16);
  static constexpr std::array<RankTiles, 5> kByLog2{
      rank_all<Lane, kBytes, 1>, rank_all<Lane, kBytes, 2>, rank_all<Lane, kBytes, 4>,
      rank_all<Lane, kBytes, 8>, rank_all<Lane, kBytes, 16>};
  const auto log2 = std::bit_width(static_cast<unsigned>(job.rank) - 1);
  kByLog2[static_cast<std::size_t>(log2)](job, found);
}

template <int kBytes>
void rank_lanes(const RankedTiles& job, std::uint32_t* found) {
  if (job.dtype == DType::bf16) return rank_lanes_of<std::int16_t, kBytes>(job, found);
  rank_lanes_of<std::int32_t, kBytes>(job, found);
}

}  // namespace
}  // namespace octavo::cpu
