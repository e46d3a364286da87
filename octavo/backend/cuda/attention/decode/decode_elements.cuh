// Elements of K and V on their way into mma.sync: FP8 codes as f16, which holds them exactly, all
// else as bf16. The halves of a register are neighbours along the depth (K) or two keys (V).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace octavo::cuda {

__device__ __forceinline__ std::uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}
__device__ __forceinline__ std::uint32_t word_of(const uint2& words, int i) {
  return i == 0 ? words.x : words.y;
}

__device__ __forceinline__ std::uint32_t bf16_pair(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
__device__ __forceinline__ std::uint32_t f16_pair(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
__device__ __forceinline__ float2 floats_of_f16(std::uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}
__device__ __forceinline__ float2 floats_of_bf16(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}
__device__ __forceinline__ std::uint32_t bf16_of_f16(std::uint32_t pair) {
  const float2 both = floats_of_f16(pair);
  return bf16_pair(both.x, both.y);
}

// Sums in f32 of products of f16 or bf16: 16 rows by 8 columns over 16, as in mma_sync.cuh.
template <bool kF16>
__device__ __forceinline__ void multiply_add_16(float (&sums)[4], std::uint32_t a0,
                                                std::uint32_t a1, std::uint32_t a2,
                                                std::uint32_t a3, std::uint32_t b0,
                                                std::uint32_t b1) {
  if constexpr (kF16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

template <bool kE5m2>
struct Fp8Element {
  static constexpr int kBytes = 1, kOfWord = 4, kStepsOfChunk = 4;
  static constexpr bool kF16 = true, kIsCode = true;

  static __device__ __forceinline__ std::uint32_t pair(std::uint32_t codes) {
    std::uint32_t halves;
    if constexpr (kE5m2)
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
    else
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
    return halves;
  }
  // Of sixteen bytes along the depth, four steps of two pairs.
  static __device__ __forceinline__ std::uint32_t along(const uint4& chunk, int step, int half) {
    const std::uint32_t word = word_of(chunk, step);
    return pair(half == 0 ? word & 0xFFFFu : word >> 16);
  }
  // Elements of two keys side by side.
  static __device__ __forceinline__ void across(std::uint32_t first, std::uint32_t second,
                                                std::uint32_t* pairs) {
    const std::uint32_t low = __byte_perm(first, second, 0x5140),
                        high = __byte_perm(first, second, 0x7362);
    pairs[0] = pair(low & 0xFFFFu);
    pairs[1] = pair(low >> 16);
    pairs[2] = pair(high & 0xFFFFu);
    pairs[3] = pair(high >> 16);
  }
};

template <bool kFromF16>
struct HalfElement {
  static constexpr int kBytes = 2, kOfWord = 2, kStepsOfChunk = 2;
  static constexpr bool kF16 = false, kIsCode = false;

  static __device__ __forceinline__ std::uint32_t rounded(std::uint32_t pair) {
    return kFromF16 ? bf16_of_f16(pair) : pair;
  }
  static __device__ __forceinline__ std::uint32_t along(const uint4& chunk, int step, int half) {
    return rounded(word_of(chunk, 2 * step + half));
  }
  static __device__ __forceinline__ void across(std::uint32_t first, std::uint32_t second,
                                                std::uint32_t* pairs) {
    pairs[0] = rounded(__byte_perm(first, second, 0x5410));
    pairs[1] = rounded(__byte_perm(first, second, 0x7632));
  }
};

struct FloatElement {
  static constexpr int kBytes = 4, kOfWord = 1, kStepsOfChunk = 1;
  static constexpr bool kF16 = false, kIsCode = false;

  static __device__ __forceinline__ std::uint32_t along(const uint4& chunk, int, int half) {
    return half == 0 ? bf16_pair(__uint_as_float(chunk.x), __uint_as_float(chunk.y))
                     : bf16_pair(__uint_as_float(chunk.z), __uint_as_float(chunk.w));
  }
  static __device__ __forceinline__ void across(std::uint32_t first, std::uint32_t second,
                                                std::uint32_t* pairs) {
    pairs[0] = bf16_pair(__uint_as_float(first), __uint_as_float(second));
  }
};

}  // namespace octavo::cuda
