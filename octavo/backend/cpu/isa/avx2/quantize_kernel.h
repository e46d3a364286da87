// Fused quantizers over f32 lanes: MX blocks of 32 with e8m0 scales, NVFP4 tiles of 16 with e4m3
// scales, and amaxes of tiles of 16. A batch of blocks stays in L1: amaxes of all of them, then
// scales in lanes, then codes. No branch or address depends on data.
#pragma once

#include <bit>
#include <cstring>

#include "octavo/backend/cpu/isa/avx2/decode_kernel.h"
#include "octavo/backend/cpu/isa/avx2/encode_kernel.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMxBlockSize = 32, kBatchBlocks = 16;
// Copies: the linker would merge what is passed by reference with that of other folders.
constexpr Format kE2m1 = e2m1fn, kE4m3 = e4m3fn;

// The amax of `kCount` values, as the bits of an f32.
template <typename L, DType kSource, int kCount>
[[gnu::always_inline]] inline std::uint32_t amax_of(const std::byte* from) {
  constexpr std::int64_t kBytes = element_bytes(kSource);
  const auto magnitude = L::splat(kF32Magnitude);
  auto most = L::band(L::template load<kSource>(from), magnitude);
#pragma GCC unroll 4
  for (int i = L::kLanes; i < kCount; i += L::kLanes)
    most = L::max(most, L::band(L::template load<kSource>(from + i * kBytes), magnitude));
  return L::largest(most);
}

// From the amax of a block to its scale byte and to the factor, a power of two.
struct MxScales {
  std::int32_t emax;        // exponent of the largest value
  std::uint32_t bump_from;  // mantissas of the amax from here on take the next scale

  explicit MxScales(const MxBlocks& blocks) {
    const Format& format = blocks.format;
    const Binade top = binade_of(static_cast<float>(max_value(format)));
    emax = top.exponent;
    const std::uint32_t none = 1u << 23;
    bump_from = blocks.rule == ScaleRule::rceil  ? top.mantissa + 1
                : blocks.rule == ScaleRule::ceil ? 1
                : blocks.rule == ScaleRule::even ? none - (1u << (22 - format.mantissa_bits))
                                                 : none;
  }

  // An amax whose exponent field is 0 comes out as byte 0 by itself: every emax is at least 1.
  template <typename L>
  [[gnu::always_inline]] void operator()(const std::uint32_t* amaxes, float* factors,
                                         std::uint32_t* bytes, std::uint32_t* poisoned) const {
    const auto amax = L::load_words(amaxes);
    const auto mantissa = L::band(amax, L::splat(0x7FFFFFu));
    const auto bump = L::keep(L::above(mantissa, L::splat(bump_from - 1)), L::splat(1));
    auto byte = L::sub(L::shift_right(amax, 23), L::splat(static_cast<std::uint32_t>(emax)));
    byte = L::max_signed(L::add(byte, bump), L::splat(0));
    // 2^(127 - byte): its exponent field is 254 - byte, and 2^-127 (byte 254) is subnormal.
    const auto field = L::sub(L::splat(254), byte);
    const auto normal = L::shift_left(field, 23);
    const auto factor = L::select(L::equal(field, L::splat(0)), L::splat(0x00400000u), normal);
    const auto bad = L::above(amax, L::splat(kF32Inf - 1));
    L::store_words(factor, factors);
    L::store_words(L::select(bad, L::splat(0xFF), byte), bytes);
    L::store_words(L::keep(bad, L::splat(0xFFFFFFFFu)), poisoned);
  }
};

template <typename L, DType kSource>
void mx_rows(const MxBlocks& blocks, const void* values, std::uint8_t* codes, std::uint8_t* scales,
             std::int64_t n) {
  constexpr std::int64_t kBytes = element_bytes(kSource), kVectors = kMxBlockSize / L::kLanes;
  const FpEnvGuard guard;
  Encoder encoder = make_encoder(blocks.format, {}, DType::f32);
  encoder.only_finite = true;
  const EncodeConstants<L> k(encoder);
  const MxScales scales_of(blocks);
  const auto poison = L::splat(blocks.poison_code);
  alignas(64) std::uint32_t amax[kBatchBlocks] = {}, byte[kBatchBlocks], poisoned[kBatchBlocks];
  alignas(64) float factor[kBatchBlocks];
  // `count` whole blocks, at most a batch.
  const auto batch = [&](const std::byte* from, std::int64_t count, std::uint8_t* to,
                         std::uint8_t* scale) __attribute__((always_inline)) {
    for (std::int64_t b = 0; b < count; ++b)
      amax[b] = amax_of<L, kSource, kMxBlockSize>(from + b * kMxBlockSize * kBytes);
    for (std::int64_t b = 0; b < kBatchBlocks; b += L::kLanes)
      scales_of.template operator()<L>(amax + b, factor + b, byte + b, poisoned + b);
    for (std::int64_t b = 0; b < count; ++b) {
      const auto times = L::splat(std::bit_cast<std::uint32_t>(factor[b]));
      const auto is_poisoned = L::negative(L::splat(poisoned[b]));
      typename L::Bits v[4];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        const auto x =
            L::template load<kSource>(from + (b * kMxBlockSize + i * L::kLanes) * kBytes);
        v[i] = L::select(
            is_poisoned, poison,
            encode_lanes<L, Rounding::nearest_even, SpecialCases::none>(k, L::fmul(x, times)));
      }
      L::template store_some<kVectors>(v, to + b * kMxBlockSize);
      scale[b] = static_cast<std::uint8_t>(byte[b]);
    }
  };
  const auto* from = static_cast<const std::byte*>(values);
  std::int64_t left = n / kMxBlockSize;
  while (left > 0) {
    const std::int64_t count = left < kBatchBlocks ? left : kBatchBlocks;
    batch(from, count, codes, scales);
    left -= count;
    from += count * kMxBlockSize * kBytes;
    codes += count * kMxBlockSize;
    scales += count;
  }
  const std::int64_t rest = n % kMxBlockSize;
  if (rest > 0) {
    alignas(64) std::byte staged[kMxBlockSize * kBytes] = {};
    alignas(64) std::uint8_t out[kMxBlockSize];
    std::memcpy(staged, from, static_cast<std::size_t>(rest * kBytes));
    batch(staged, 1, out, scales);
    std::memcpy(codes, out, static_cast<std::size_t>(rest));
  }
}

template <typename L>
MxKernels choose_mx(const MxBlocks& blocks) {
  const Encoder encoder = make_encoder(blocks.format, {}, DType::f32);
  if (!lanes_fit(encoder) || special_cases(encoder) == SpecialCases::general) return {};
  if (blocks.source == DType::f32) return {.rows = mx_rows<L, DType::f32>};
  if (blocks.source == DType::bf16) return {.rows = mx_rows<L, DType::bf16>};
  return {};
}

// NVFP4. The order of operations is tile_scale's: two quotients, an e4m3, a product, a reciprocal.
template <typename L>
struct Nvfp4Scales {
  typename L::Bits tensor, zero_code, poison_code;
  EncodeConstants<L> scale_code;
  DecodeConstants<L> scale_value;

  Nvfp4Scales(float tensor_scale, std::uint32_t zero, std::uint32_t poison)
      : tensor(L::splat(std::bit_cast<std::uint32_t>(tensor_scale))),
        zero_code(L::splat(zero)),
        poison_code(L::splat(poison)),
        scale_code(make_encoder(kE4m3, {}, DType::f32)),
        scale_value(kE4m3) {}

  [[gnu::always_inline]] void operator()(const std::uint32_t* amaxes, float* factors,
                                         std::uint32_t* codes, std::uint32_t* poisoned) const {
    const auto amax = L::load_words(amaxes);
    const auto six = L::splat(std::bit_cast<std::uint32_t>(6.0F));
    const auto wanted = L::fdiv(L::fdiv(amax, six), tensor);
    const auto code =
        L::max(encode_lanes<L, Rounding::nearest_even, SpecialCases::none>(scale_code, wanted),
               L::splat(1));
    const auto scale = L::fmul(decode_lanes<L>(scale_value, code), tensor);
    const auto one = L::splat(std::bit_cast<std::uint32_t>(1.0F));
    const auto largest = L::splat(std::bit_cast<std::uint32_t>(kMaxFloat));
    L::store_words(L::min(L::fdiv(one, scale), largest), factors);
    const auto bad = L::above(amax, L::splat(kF32Inf - 1));
    const auto stored =
        L::select(bad, poison_code, L::select(L::equal(amax, L::splat(0)), zero_code, code));
    L::store_words(stored, codes);
    L::store_words(L::keep(bad, L::splat(0xFFFFFFFFu)), poisoned);
  }
};

template <typename L, DType kSource>
void fp4_rows(const Fp4Tiles& job, const void* values, std::uint8_t* codes, std::uint8_t* scales,
              std::int64_t n) {
  constexpr std::int64_t kBytes = element_bytes(kSource), kTile = kFp4Tile;
  constexpr std::int64_t kTiles = L::kGroup / kTile;  // tiles of a group of four vectors: 2 or 4
  const FpEnvGuard guard;
  const Fp4SpecialScales special = fp4_special_scales(job.tensor_scale);
  const Nvfp4Scales<L> scales_of(job.tensor_scale, special.zero, special.poison);
  Encoder encoder = make_encoder(kE2m1, {}, DType::f32);
  encoder.only_finite = true;
  const EncodeConstants<L> k(encoder);
  alignas(64) std::uint32_t amax[kBatchBlocks] = {}, byte[kBatchBlocks], poisoned[kBatchBlocks];
  alignas(64) float factor[kBatchBlocks];
  // A batch of sixteen tiles; `count` of them are there, and a multiple of kTiles is written.
  const auto batch = [&](const std::byte* from, std::int64_t count, std::uint8_t* to,
                         std::uint8_t* scale) __attribute__((always_inline)) {
    for (std::int64_t t = 0; t < count; ++t)
      amax[t] = amax_of<L, kSource, kTile>(from + t * kTile * kBytes);
    for (std::int64_t t = 0; t < kBatchBlocks; t += L::kLanes)
      scales_of(amax + t, factor + t, byte + t, poisoned + t);
    for (std::int64_t t = 0; t < count; t += kTiles) {
      typename L::Bits v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const std::int64_t tile = t + i * L::kLanes / kTile;
        const auto x = L::template load<kSource>(from + (t * kTile + i * L::kLanes) * kBytes);
        const auto scaled = L::fmul(x, L::splat(std::bit_cast<std::uint32_t>(factor[tile])));
        const auto code = encode_lanes<L, Rounding::nearest_even, SpecialCases::none>(k, scaled);
        v[i] = L::select(L::negative(L::splat(poisoned[tile])), L::splat(0), code);
      }
      L::store_nibbles(v, to + t * kTile / 2);
    }
    for (std::int64_t t = 0; t < count; ++t) scale[t] = static_cast<std::uint8_t>(byte[t]);
  };
  const auto* from = static_cast<const std::byte*>(values);
  std::int64_t left = n / (kTile * kTiles) * kTiles;
  while (left > 0) {
    const std::int64_t count = left < kBatchBlocks ? left : kBatchBlocks;
    batch(from, count, codes, scales);
    left -= count;
    from += count * kTile * kBytes;
    codes += count * kTile / 2;
    scales += count;
  }
  const std::int64_t rest = n % (kTile * kTiles);
  if (rest > 0) {
    alignas(64) std::byte staged[kTile * kTiles * kBytes] = {};
    alignas(64) std::uint8_t out[kTile * kTiles / 2], bytes[kTiles];
    std::memcpy(staged, from, static_cast<std::size_t>(rest * kBytes));
    batch(staged, kTiles, out, bytes);
    std::memcpy(codes, out, static_cast<std::size_t>((rest + 1) / 2));
    std::memcpy(scales, bytes, static_cast<std::size_t>((rest + kTile - 1) / kTile));
  }
}

template <typename L>
Fp4Rows choose_fp4(DType source) {
  if (source == DType::f32) return fp4_rows<L, DType::f32>;
  if (source == DType::bf16) return fp4_rows<L, DType::bf16>;
  return nullptr;
}

template <typename L, DType kSource>
std::int64_t raise_by_tiles(const void* values, std::int64_t tiles, std::uint32_t* amax) {
  constexpr std::int64_t kStep = kFp4Tile * element_bytes(kSource);
  const auto* from = static_cast<const std::byte*>(values);
  for (std::int64_t t = 0; t < tiles; ++t, from += kStep) {
    const std::uint32_t found = amax_of<L, kSource, kFp4Tile>(from);
    amax[t] = amax[t] > found ? amax[t] : found;
  }
  return tiles;
}

template <typename L>
std::int64_t amax16(DType dtype, const void* values, std::int64_t tiles, std::uint32_t* amax) {
  if (dtype == DType::f32) return raise_by_tiles<L, DType::f32>(values, tiles, amax);
  if (dtype == DType::bf16) return raise_by_tiles<L, DType::bf16>(values, tiles, amax);
  return 0;
}

}  // namespace
}  // namespace octavo::cpu
