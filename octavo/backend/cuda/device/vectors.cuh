// Vector loads and stores of fast kernels: eight values or codes of a row at a time.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/tensor/dtype.h"

namespace octavo::cuda {

inline constexpr int kVector = 8;

// Streaming store (evict first): results are not read again by this kernel. Plain stores beside
// streaming loads make a cast a tenth slower (bench/ladder).
template <typename T>
__device__ __forceinline__ void store_once(T* to, T value) {
  __stcs(to, value);
}

__device__ __forceinline__ std::uint32_t f32_bits_of_f16(std::uint16_t half) {
  const std::uint32_t bits = __float_as_uint(__half2float(__ushort_as_half(half)));
  // The conversion loses the sign of NaN.
  const bool nan = (half & 0x7FFFu) > 0x7C00u;
  return nan ? (static_cast<std::uint32_t>(half & 0x8000u) << 16) | 0x7FC00000u : bits;
}

// A vector as it lies in memory.
template <DType kType>
struct Raw;
template <>
struct Raw<DType::f32> {
  uint4 words[2];
  static constexpr int kBytes = 32;
};
template <>
struct Raw<DType::bf16> {
  uint4 words[1];
  static constexpr int kBytes = 16;
};
template <>
struct Raw<DType::f16> : Raw<DType::bf16> {};

// `at` counts vectors.
template <DType kType>
__device__ __forceinline__ Raw<kType> load_raw(const void* from, std::int64_t at) {
  const auto* words = static_cast<const uint4*>(from) + at * (Raw<kType>::kBytes / 16);
  Raw<kType> raw;
#pragma unroll
  for (int i = 0; i < Raw<kType>::kBytes / 16; ++i) raw.words[i] = __ldg(words + i);
  return raw;
}

__device__ __forceinline__ std::uint32_t word(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// One of the values in sixteen bytes, as f32 bits.
template <DType kType>
__device__ __forceinline__ std::uint32_t f32_bits(const uint4& words, int i) {
  if constexpr (kType == DType::f32) return word(words, i);
  const std::uint32_t pair = word(words, i / 2);
  if constexpr (kType == DType::bf16) return i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u;
  return f32_bits_of_f16(static_cast<std::uint16_t>(i % 2 == 0 ? pair & 0xFFFFu : pair >> 16));
}
template <DType kType>
__device__ __forceinline__ std::uint32_t f32_bits(const Raw<kType>& raw, int i) {
  constexpr int kEach = kType == DType::f32 ? 4 : 8;
  return f32_bits<kType>(raw.words[i / kEach], i % kEach);
}

// The same where it does not matter which NaN a NaN becomes.
template <DType kType>
__device__ __forceinline__ float any_nan_value(const uint4& words, int i) {
  if constexpr (kType == DType::f16) {
    const std::uint32_t pair = word(words, i / 2);
    return __half2float(
        __ushort_as_half(static_cast<std::uint16_t>(i % 2 == 0 ? pair & 0xFFFFu : pair >> 16)));
  } else {
    return __uint_as_float(f32_bits<kType>(words, i));
  }
}
template <DType kType>
__device__ __forceinline__ float any_nan_value(const Raw<kType>& raw, int i) {
  constexpr int kEach = kType == DType::f32 ? 4 : 8;
  return any_nan_value<kType>(raw.words[i / kEach], i % kEach);
}

// Replaces NaN by zero.
template <DType kType>
__device__ __forceinline__ uint4 without_nan(const uint4& words) {
  const auto cleared = [](std::uint32_t word) {
    if constexpr (kType == DType::f32) return (word & 0x7FFFFFFFu) > 0x7F800000u ? 0u : word;
    constexpr unsigned kInfinity = kType == DType::bf16 ? 0x7F807F80u : 0x7C007C00u;
    return word & ~__vcmpgtu2(word & 0x7FFF7FFFu, kInfinity);
  };
  return {cleared(words.x), cleared(words.y), cleared(words.z), cleared(words.w)};
}
template <DType kType>
__device__ __forceinline__ Raw<kType> without_nan(Raw<kType> raw) {
#pragma unroll
  for (int i = 0; i < Raw<kType>::kBytes / 16; ++i) raw.words[i] = without_nan<kType>(raw.words[i]);
  return raw;
}

// 16-bit magnitudes are ordered like integers, two per word.
__device__ __forceinline__ unsigned halves_amax(const uint4& words) {
  constexpr unsigned kMask = 0x7FFF7FFFu;
  return __vimax3_u16x2(__vimax3_u16x2(words.x & kMask, words.y & kMask, words.z & kMask),
                        words.w & kMask, 0u);
}
// A 16-bit magnitude in the high half of a word, as f32 bits.
template <DType kType>
__device__ __forceinline__ std::uint32_t widened_magnitude(unsigned high) {
  if constexpr (kType == DType::bf16) return high & 0xFFFF0000u;
  return f32_bits_of_f16(static_cast<std::uint16_t>(high >> 16));
}

// Stores the codes of two neighbouring vectors, in one store where the address allows it. The
// second may be beyond the end.
__device__ __forceinline__ void store_pair(unsigned char* to, std::int64_t pair, uint2 first,
                                           uint2 second, bool wide, bool has_second) {
  auto* words = reinterpret_cast<uint2*>(to) + pair * 2;
  if (wide && has_second) {
    store_once(reinterpret_cast<uint4*>(words), uint4{first.x, first.y, second.x, second.y});
  } else {
    store_once(words, first);
    if (has_second) store_once(words + 1, second);
  }
}

// Packs the eight codes of a vector, of up to eight bits each, one per byte. By multiply-add, which
// the multiplier pipe executes; bits beyond a byte carry into the next.
__device__ __forceinline__ uint2 packed_bytes(const std::uint32_t (&codes)[kVector]) {
  const auto four = [&](int i) {
    return (codes[i] + codes[i + 1] * 0x100u) + (codes[i + 2] + codes[i + 3] * 0x100u) * 0x10000u;
  };
  return {four(0), four(4)};
}
__device__ __forceinline__ std::uint32_t packed_nibbles(const std::uint32_t (&codes)[kVector]) {
  return codes[0] | codes[1] << 4 | codes[2] << 8 | codes[3] << 12 | codes[4] << 16 |
         codes[5] << 20 | codes[6] << 24 | codes[7] << 28;
}

// The sign bits of eight values as the top bits of eight bytes.
template <DType kType>
__device__ __forceinline__ uint2 sign_bytes_of(const Raw<kType>& raw) {
  constexpr std::uint32_t kTops = 0x80808080u;
  const uint4 low = raw.words[0];
  if constexpr (kType == DType::f32) {
    const uint4 high = raw.words[1];
    const auto four = [](const uint4& words) {
      return __byte_perm(__byte_perm(words.x, words.y, 0x0073),
                         __byte_perm(words.z, words.w, 0x0073), 0x5410) &
             kTops;
    };
    return {four(low), four(high)};
  } else {
    return {__byte_perm(low.x, low.y, 0x7531) & kTops, __byte_perm(low.z, low.w, 0x7531) & kTops};
  }
}

// Stores codes in their memory layout: `bits` per code, 8 or 16 where they are not packed.
__device__ __forceinline__ void store_codes(void* to, std::int64_t at, int bits,
                                            const std::uint32_t (&codes)[kVector]) {
  if (bits == 8) {
    store_once(static_cast<uint2*>(to) + at, packed_bytes(codes));
  } else if (bits == 4) {
    store_once(static_cast<std::uint32_t*>(to) + at, packed_nibbles(codes));
  } else if (bits == 16) {
    store_once(static_cast<uint4*>(to) + at,
               uint4{codes[0] | codes[1] << 16, codes[2] | codes[3] << 16,
                     codes[4] | codes[5] << 16, codes[6] | codes[7] << 16});
  } else if (bits == 6) {
    const std::uint32_t low = codes[0] | codes[1] << 6 | codes[2] << 12 | codes[3] << 18 |
                              codes[4] << 24 | codes[5] << 30;
    const std::uint32_t high = codes[5] >> 2 | codes[6] << 4 | codes[7] << 10;
    auto* words = static_cast<std::uint16_t*>(to) + at * 3;
    words[0] = static_cast<std::uint16_t>(low);
    words[1] = static_cast<std::uint16_t>(low >> 16);
    words[2] = static_cast<std::uint16_t>(high);
  } else {
    std::uint64_t all = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) all |= static_cast<std::uint64_t>(codes[i]) << (i * bits);
    auto* bytes = static_cast<unsigned char*>(to) + at * bits;
    for (int i = 0; i < bits; ++i) bytes[i] = static_cast<unsigned char>(all >> (8 * i));
  }
}

// Codes of seven bits are seven bytes per vector: four vectors, of four neighbouring lanes, are
// seven words. Lane l of the four stores the two words from 2l on, the second with bytes of the
// next lane. All lanes of a warp call this; `at` counts vectors and increases by one per lane.
__device__ __forceinline__ void store_sevens(void* to, std::int64_t at, std::int64_t end,
                                             const std::uint32_t (&codes)[kVector]) {
  const std::uint32_t low =
      codes[0] | codes[1] << 7 | codes[2] << 14 | codes[3] << 21 | codes[4] << 28;
  const std::uint32_t high = codes[4] >> 4 | codes[5] << 3 | codes[6] << 10 | codes[7] << 17;
  const std::uint32_t next = __shfl_down_sync(0xFFFFFFFFu, low, 1);
  const auto lane = static_cast<unsigned>(at % 4);
  if (at - lane + 4 <= end && is_aligned(to, 4)) {
    auto* words = static_cast<std::uint32_t*>(to) + (at - lane) / 4 * 7 + 2 * lane;
    store_once(words, __funnelshift_r(low, high, 8 * lane));
    if (lane < 3) store_once(words + 1, high >> (8 * lane) | next << (24 - 8 * lane));
  } else if (at < end) {
    auto* bytes = static_cast<unsigned char*>(to) + at * 7;
#pragma unroll
    for (int i = 0; i < 7; ++i)
      bytes[i] = static_cast<unsigned char>(i < 4 ? low >> (8 * i) : high >> (8 * i - 32));
  }
}
// The reverse, from the words that contain the seven bytes. Bits above a code are those of the
// next.
__device__ __forceinline__ void load_sevens(const void* from, std::int64_t at, std::int64_t end,
                                            std::uint32_t (&codes)[kVector]) {
  std::uint32_t low = 0, high = 0;
  if ((at | 3) < end && is_aligned(from, 4)) {
    const auto* words = static_cast<const std::uint32_t*>(from) + (7 * at >> 2);
    const auto shift = static_cast<unsigned>(7 * at & 3) * 8;
    const std::uint32_t first = __ldg(words), second = __ldg(words + 1),
                        third = shift >= 16 ? __ldg(words + 2) : 0u;
    low = __funnelshift_r(first, second, shift);
    high = __funnelshift_r(second, third, shift);
  } else if (at < end) {
    const auto* bytes = static_cast<const unsigned char*>(from) + at * 7;
#pragma unroll
    for (int i = 0; i < 7; ++i) {
      if (i < 4)
        low |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
      else
        high |= static_cast<std::uint32_t>(bytes[i]) << (8 * i - 32);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) codes[i] = low >> (7 * i);
  codes[4] = __funnelshift_r(low, high, 28);
#pragma unroll
  for (int i = 5; i < kVector; ++i) codes[i] = high >> (7 * i - 32);
}

__device__ __forceinline__ void load_codes(const void* from, std::int64_t at, int bits,
                                           std::uint32_t (&codes)[kVector]) {
  if (bits == 8) {
    const uint2 words = __ldg(static_cast<const uint2*>(from) + at);
#pragma unroll
    for (int i = 0; i < kVector; ++i) codes[i] = (i < 4 ? words.x : words.y) >> (i % 4 * 8) & 0xFFu;
  } else if (bits == 4) {
    const std::uint32_t words = __ldg(static_cast<const std::uint32_t*>(from) + at);
#pragma unroll
    for (int i = 0; i < kVector; ++i) codes[i] = words >> (i * 4) & 0xFu;
  } else if (bits == 16) {
    const uint4 words = __ldg(static_cast<const uint4*>(from) + at);
#pragma unroll
    for (int i = 0; i < kVector; ++i) codes[i] = word(words, i / 2) >> (i % 2 * 16) & 0xFFFFu;
  } else if (bits == 6) {
    const auto* words = static_cast<const std::uint16_t*>(from) + at * 3;
    const std::uint64_t all = words[0] | static_cast<std::uint64_t>(words[1]) << 16 |
                              static_cast<std::uint64_t>(words[2]) << 32;
#pragma unroll
    for (int i = 0; i < kVector; ++i) codes[i] = static_cast<std::uint32_t>(all >> (i * 6)) & 0x3Fu;
  } else {
    std::uint64_t all = 0;
    const auto* bytes = static_cast<const unsigned char*>(from) + at * bits;
    for (int i = 0; i < bits; ++i) all |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      codes[i] = static_cast<std::uint32_t>(all >> (i * bits)) & ((1u << bits) - 1u);
  }
}

}  // namespace octavo::cuda
