// Fused quantizers of rows over f32 lanes: a batch of tiles, as many as there are lanes, stays in
// L1 or registers: amaxes of all of them, found while their maxima are transposed; scales in lanes;
// then codes. No branch or address depends on data.
//
// Operations for sixteen bf16 in 512-bit vectors, ports 0 and 5 (s: 5 alone):
//                    MX before       MX now            NVFP4 before    NVFP4 now
//   amaxes           9, of them 4s   2.9, 1s           12, 5s          2.9, 0.7s
//   scales           1.3             1.3               3               3
//   load, multiply   3, 1s           2                 3, 1s           2.5
//   codes (encode_lanes.h)
//                    13, 2s          9                 13, 2s          9
//   poison, order, packing, store
//                    3, 2s           2.5, 2s           3, 2s           3, 2.5s
// so 29 before and 18 now for MX, 34 and 20 for NVFP4.
#pragma once

#include <bit>
#include <cstring>

#include "octavo/backend/cpu/isa/avx2/encode_lanes.h"
#include "octavo/backend/cpu/isa/avx2/memory_ahead.h"
#include "octavo/base/fp_env.h"

namespace octavo::cpu {
namespace {

// Scales of as many tiles as there are lanes.
template <typename L>
struct TileScales {
  typename L::Bits factor;    // f32
  typename L::Bits code;      // what is stored, in the low byte
  typename L::Bits poisoned;  // all ones, or 0
};

// Values of a row to codes, in batches of as many tiles of kTile values as there are lanes; the
// last batch is staged. `scale` makes TileScales of the values of a batch and their amaxes.
template <typename L, DType kSource, int kTile, bool kNibbles, typename Scale>
[[gnu::always_inline]] inline void quantize_row(const EncodeConstants<L>& k,
                                                typename L::Bits poison, const Scale& scale,
                                                const void* values, std::uint8_t* codes,
                                                std::uint8_t* scales, std::int64_t n) {
  using Bits = typename L::Bits;
  constexpr std::int64_t kBytes = element_bytes(kSource), kBatch = L::kLanes * kTile;
  constexpr int kTiles = L::kGroup / kTile;  // in a group
  constexpr int kPerByte = kNibbles ? 2 : 1;
  // Scales of a batch are made before the codes of the one before it: their chain of operations,
  // with quotients, is long.
  struct Scales {
    alignas(64) float factor[L::kLanes];
    alignas(64) std::uint32_t poisoned[L::kLanes];
  } made[2];
  const auto make = [&](const std::byte* from, std::uint8_t* bytes, Scales& to)
      __attribute__((always_inline)) {
    const TileScales<L> of = scale(from, L::template amaxes<kSource, kTile>(from));
    L::store_words(of.factor, to.factor);
    L::store_words(of.poisoned, to.poisoned);
    L::store_low_bytes(of.code, bytes);
  };
  // Codes of `tiles`, a multiple of kTiles.
  const auto encode = [&](const std::byte* from, int tiles, const Scales& by, std::uint8_t* to)
      __attribute__((always_inline)) {
    for (int t = 0; t < tiles; t += kTiles) {
      prefetch_ahead<L::kGroup * kBytes>(from + t * kTile * kBytes);
      Bits raw[4];
      L::template load_group<kSource>(from + t * kTile * kBytes, raw);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const Bits times =
            kTile == 16
                ? L::template of_tile<kSource>(by.factor + t, i)
                : L::splat(std::bit_cast<std::uint32_t>(by.factor[t + i * L::kLanes / kTile]));
        raw[i] = L::fmul(raw[i], times);
      }
      const Bits packed = encode_group<L, Rounding::nearest_even, SpecialCases::none>(k, raw);
      const Bits codes_of = L::merge(L::template spread<kTile>(by.poisoned + t), poison,
                                     L::template in_order<kSource>(packed));
      if constexpr (kNibbles)
        L::store_nibbles(codes_of, to + t * kTile / 2);
      else
        L::store_words(codes_of, to + t * kTile);
    }
  };
  const auto* from = static_cast<const std::byte*>(values);
  constexpr std::int64_t kStep = kBatch * kBytes;
  const std::int64_t batches = n / kBatch;
  if (batches > 0) make(from, scales, made[0]);
  for (std::int64_t b = 0; b < batches; ++b) {
    if (b + 1 < batches) make(from + kStep, scales + L::kLanes, made[(b + 1) % 2]);
    encode(from, L::kLanes, made[b % 2], codes);
    from += kStep;
    codes += kBatch / kPerByte;
    scales += L::kLanes;
  }
  n -= batches * kBatch;
  if (n > 0) {
    alignas(64) std::byte in[kStep] = {};
    alignas(64) std::uint8_t out[kBatch / kPerByte], bytes[L::kLanes];
    std::memcpy(in, from, static_cast<std::size_t>(n * kBytes));
    const auto groups = static_cast<int>((n + L::kGroup - 1) / L::kGroup);
    make(in, bytes, made[0]);
    encode(in, groups * kTiles, made[0], out);
    std::memcpy(codes, out, static_cast<std::size_t>((n + kPerByte - 1) / kPerByte));
    std::memcpy(scales, bytes, static_cast<std::size_t>((n + kTile - 1) / kTile));
  }
}

}  // namespace
}  // namespace octavo::cpu
