// Scales of weights in the small M kernel (small_m.cuh): which of them a lane holds, and where they
// are applied. Block scales of 16 or 32 of K differ among the lanes of one mma.sync, so they
// multiply the weights, which is exact; others are applied to sums.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "octavo/backend/cuda/gemm/fp4_decode.cuh"
#include "octavo/backend/cuda/gemm/small_m/small_m_load.cuh"
#include "octavo/backend/cuda/gemm/small_m/small_m_plan.h"

namespace octavo::cuda {

// For codes whose scales are applied to sums.
struct NoFactor {};
__device__ __forceinline__ unsigned times(unsigned pair, NoFactor /*none*/) { return pair; }
__device__ __forceinline__ unsigned times(unsigned pair, __nv_bfloat162 factor) {
  const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), factor);
  return *reinterpret_cast<const unsigned*>(&product);
}

// Block scales, a byte for 16 of K (e4m3, NVFP4) or for 32 (e8m0, MX): all 16 or 8 of a chunk.
// Whole chunks have theirs at multiples of eight bytes; otherwise a lane loads the scales of its
// own codes.
template <bool kNvfp4>
struct BlockScales {
  static constexpr int kRun = 0;
  static constexpr bool kAtEnd = false;
  static constexpr int kBytes = kNvfp4 ? 16 : 8;

  unsigned words[kBytes / 4];

  static __device__ __forceinline__ const unsigned char* of_row(const SmallMPlan& plan, int row) {
    return plan.scales + row * plan.scale_pitch;
  }
  static __device__ __forceinline__ int chunk_bytes(const SmallMPlan& /*plan*/) { return kBytes; }

  template <bool kWhole>
  __device__ __forceinline__ void load(const unsigned char* from, int t, int depth) {
    if constexpr (kWhole) {
#pragma unroll
      for (int i = 0; i < kBytes / 8; ++i) {
        uint2 two;
        load_once(from + i * 8, two);
        words[2 * i] = two.x;
        words[2 * i + 1] = two.y;
      }
    } else {
#pragma unroll
      for (unsigned& word : words) word = 0;
#pragma unroll
      for (int j = 0; j < kSmallMSixteens; ++j) {
        const bool there = j * 64 + t * 16 < depth;
        const unsigned scale = there ? __ldg(from + (kNvfp4 ? 4 * j + t : 2 * j + t / 2)) : 0u;
        words[word_of(j)] |= scale << bits_before(j, t);
      }
    }
  }

  __device__ __forceinline__ __nv_bfloat162 factor(int j, int t) const {
    const unsigned byte = words[word_of(j)] >> bits_before(j, t) & 0xFFu;
    const unsigned bits = block_scale_bits<kNvfp4>(byte), both = bits | bits << 16;
    return *reinterpret_cast<const __nv_bfloat162*>(&both);
  }

 private:
  static constexpr __device__ int word_of(int j) { return kNvfp4 ? j : j / 2; }
  static constexpr __device__ int bits_before(int j, int t) {
    return kNvfp4 ? 8 * t : 16 * (j % 2) + 8 * (t / 2);
  }
};

// An f32 for 128 of K and any number of rows, anywhere in memory: applied to the sum of 128
// products.
struct RunScales {
  static constexpr int kRun = 128;
  static constexpr bool kAtEnd = false;
  static constexpr int kRuns = kSmallMChunk / kRun;  // per chunk

  float of[kRuns];

  static __device__ __forceinline__ const unsigned char* of_row(const SmallMPlan& plan, int row) {
    return plan.scales + row / plan.scale_rows * plan.scale_pitch;
  }
  static __device__ __forceinline__ std::int64_t chunk_bytes(const SmallMPlan& plan) {
    return kRuns * plan.scale_stride;
  }

  template <bool kWhole>
  __device__ __forceinline__ void load_run(const SmallMPlan& plan, const unsigned char* from, int i,
                                           int depth) {
    of[i] = kWhole || i * kRun < depth
                ? __ldg(reinterpret_cast<const float*>(from + i * plan.scale_stride))
                : 0.0F;
  }

  __device__ __forceinline__ NoFactor factor(int /*j*/, int /*t*/) const { return {}; }
  __device__ __forceinline__ float of_run(int i) const { return of[i]; }
};

// An f32 for all of K and any number of rows.
struct RowScales {
  static constexpr int kRun = 0;
  static constexpr bool kAtEnd = true;

  static __device__ __forceinline__ const unsigned char* of_row(const SmallMPlan& plan, int row) {
    return plan.scales + row / plan.scale_rows * plan.scale_pitch;
  }
  static __device__ __forceinline__ int chunk_bytes(const SmallMPlan& /*plan*/) { return 0; }

  template <bool kWhole>
  __device__ __forceinline__ void load(const unsigned char* /*from*/, int /*t*/, int /*depth*/) {}

  __device__ __forceinline__ NoFactor factor(int /*j*/, int /*t*/) const { return {}; }
  static __device__ __forceinline__ float at_end(const SmallMPlan& plan, int row) {
    return __ldg(reinterpret_cast<const float*>(of_row(plan, row)));
  }
};

}  // namespace octavo::cuda
