// Rescales FP8 codes by a power of two below one, to nearest even: how a block of MX gets a larger
// exponent. The only implementation on the device.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/backend/cuda/device/hardware_cvt.cuh"

namespace octavo::cuda {

__device__ __forceinline__ float power_of(std::uint32_t code) {  // of an e8m0 code
  return __uint_as_float(code == 255 ? 0x7FC00000u : code == 0 ? 0x00400000u : code << 23);
}

// Decodes two codes to f16, which holds every value.
template <bool kE5m2>
__device__ __forceinline__ __half2 decoded_pair(std::uint32_t codes) {
  std::uint32_t halves;
  if constexpr (kE5m2)
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  else
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  return *reinterpret_cast<const __half2*>(&halves);
}

__device__ __forceinline__ std::uint32_t e4m3_pair(__half2 halves) {
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;"
      : "=h"(pair)
      : "r"(*reinterpret_cast<const std::uint32_t*>(&halves)));
  return pair;
}

// Codes times 2^-down. f16 is enough for e4m3: of its values times a power of two, whose four bits
// reach no further than three below the first, only those below 2^-21 are inexact in f16, and
// everything below 2^-10 becomes zero, as does 2^-24 times the largest.
template <bool kE5m2>
struct Rescaling {
  float factor;
  __half2 halves;

  __device__ __forceinline__ explicit Rescaling(std::uint32_t down)
      : factor(power_of(127 - min(down, 40u))),
        halves(__float2half2_rn(power_of(127 - min(down, 24u)))) {}

  __device__ __forceinline__ std::uint32_t pair(std::uint32_t codes, unsigned* changed) const {
    const __half2 was = decoded_pair<kE5m2>(codes);
    std::uint32_t made;
    if constexpr (kE5m2) {
      const float2 values = __half22float2(was);
      made = hardware_pair<true>(values.x * factor, values.y * factor);
    } else {
      made = e4m3_pair(__hmul2(was, halves));
    }
    if (changed != nullptr) {
      const float2 wanted = __half22float2(was), is = __half22float2(decoded_pair<kE5m2>(made));
      // Neither NaN nor Inf, which are kept.
      const auto differs = [&](float x, float y) { return x - x == 0.0F && x * factor != y; };
      *changed += differs(wanted.x, is.x) + differs(wanted.y, is.y);
    }
    return made;
  }

  // The top bit of each byte that is NaN or Inf.
  static __device__ __forceinline__ std::uint32_t special(std::uint32_t word) {
    return (kE5m2 ? (word & 0x7C7C7C7Cu) + 0x04040404u : (word & 0x7F7F7F7Fu) + 0x01010101u) &
           0x80808080u;
  }

  __device__ __forceinline__ uint4 operator()(uint4 codes, unsigned* changed) const {
    const auto four = [&](std::uint32_t word) {
      return pair(word & 0xFFFF, changed) | pair(word >> 16, changed) << 16;
    };
    uint4 made = make_uint4(four(codes.x), four(codes.y), four(codes.z), four(codes.w));
    // cvt makes every NaN the positive one and Inf the largest value.
    if ((special(codes.x) | special(codes.y) | special(codes.z) | special(codes.w)) != 0) {
      const auto keep = [](std::uint32_t was, std::uint32_t& is) {
        const std::uint32_t bytes = (special(was) >> 7) * 0xFFu;
        is = (is & ~bytes) | (was & bytes);
      };
      keep(codes.x, made.x);
      keep(codes.y, made.y);
      keep(codes.z, made.z);
      keep(codes.w, made.w);
    }
    return made;
  }
};

// All lanes of a warp call this with the number of codes they changed.
__device__ __forceinline__ void count_changed(unsigned changed, unsigned long long* counter) {
  changed = __reduce_add_sync(0xFFFFFFFFu, changed);
  if (threadIdx.x % 32 == 0 && changed > 0)
    atomicAdd(counter, static_cast<unsigned long long>(changed));
}

}  // namespace octavo::cuda
