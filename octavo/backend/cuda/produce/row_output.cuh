// Output of a produced row: stores values, or quantizes to codes in registers. A thread has pairs
// of vectors, sixteen neighbouring values each, so that blocks along the row are reduced by
// shuffles as in quantize_1d_blocks.cu.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/convert/decode_element.cuh"
#include "octavo/backend/cuda/device/block_reduce.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/produce/row_plan.h"
#include "octavo/backend/cuda/quantize/fast_encode.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.cuh"

namespace octavo::cuda {

// The larger magnitude; NaN if either is NaN.
__device__ __forceinline__ float larger_magnitude(float most, float value) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(most), "f"(fabsf(value)));
  return result;
}

// Destination of one row.
struct RowTargets {
  unsigned char *codes, *scales;  // codes: or values
  bool first;                     // first row of the matrix
};

template <RowOutput kOutput>
__device__ __forceinline__ void store_sixteen(unsigned char* to, int pair, const float* x,
                                              float factor) {
  if constexpr (is_values(kOutput)) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      std::uint32_t bits[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float value = x[v * kVector + i];
        // Arithmetic does not preserve the NaN payload.
        bits[i] = value == value ? __float_as_uint(value) : kQuietNan;
      }
      constexpr DType kType = kOutput == RowOutput::f32    ? DType::f32
                              : kOutput == RowOutput::bf16 ? DType::bf16
                                                           : DType::f16;
      store_values<kType>(to, pair * 2 + v, bits);
    }
  } else {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = hardware_four<false>(x[4 * i] * factor, x[4 * i + 1] * factor,
                                      x[4 * i + 2] * factor, x[4 * i + 3] * factor);
    store_once(reinterpret_cast<uint4*>(to) + pair, uint4{words[0], words[1], words[2], words[3]});
  }
}

// Stores the scale bytes of blocks of 32, each held by two lanes: four of them as a word where that
// is aligned.
template <int kPairs>
__device__ __forceinline__ void store_bytes(const RowPlan& plan, unsigned char* scales,
                                            const int (&pairs)[kPairs], const bool (&has)[kPairs],
                                            const std::uint32_t (&bytes)[kPairs]) {
  static_assert(kPairs <= 2);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  if (plan.words_of_scales) {
    // Both pairs at once: a byte in each half, then those of the next lane, then of the next two.
    std::uint32_t mine = bytes[0] | (kPairs == 2 ? bytes[kPairs - 1] << 16 : 0u);
    mine |= __shfl_down_sync(0xFFFFFFFFu, mine, 2) << 8;
    const std::uint32_t next = __shfl_down_sync(0xFFFFFFFFu, mine, 4);
#pragma unroll
    for (int p = 0; p < kPairs; ++p)
      if (has[p] && lane % 8 == 0)
        *reinterpret_cast<std::uint32_t*>(scales + pairs[p] / 2) =
            __byte_perm(mine, next, p == 0 ? 0x5410 : 0x7632);
  } else {
#pragma unroll
    for (int p = 0; p < kPairs; ++p)
      if (has[p] && lane % 2 == 0)
        scales[pairs[p] / 2 * plan.scale_stride] = static_cast<unsigned char>(bytes[p]);
  }
}

// All threads of a block call this with their part of one row. `pairs` are indices along the row;
// values are zero where has[p] is false. `shared` has a number for each warp; its contents are
// overwritten, and it may be reused after the next barrier.
template <RowOutput kOutput, int kPairs>
__device__ __forceinline__ void store_row(const RowPlan& plan, const RowTargets& to,
                                          const int (&pairs)[kPairs], const bool (&has)[kPairs],
                                          const float (&x)[kPairs * kRowValues],
                                          std::uint32_t* shared) {
  float factors[kPairs];
#pragma unroll
  for (int p = 0; p < kPairs; ++p) factors[p] = 1.0F;
  if constexpr (!is_values(kOutput)) {
    std::uint32_t most[kPairs];
    std::uint32_t most_of_all = 0;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      float two[2] = {0.0F, 0.0F};
#pragma unroll
      for (int i = 0; i < kRowValues; ++i)
        two[i % 2] = larger_magnitude(two[i % 2], x[p * kRowValues + i]);
      most[p] = max(__float_as_uint(two[0]), __float_as_uint(two[1]));  // NaN is above all else
      most_of_all = max(most_of_all, most[p]);
    }
    if (kOutput == RowOutput::row || plan.amax != nullptr)
      most_of_all = block_amax(most_of_all, shared);
    if (plan.amax != nullptr && threadIdx.x == 0 && most_of_all != 0)
      atomicMax(reinterpret_cast<std::uint32_t*>(plan.amax),
                most_of_all > 0x7F800000u ? kQuietNan : most_of_all);
    if constexpr (kOutput == RowOutput::row) {
      const MadeScale made = fast_tile_scale<FastKind::quotient>(plan.scale, most_of_all);
      if (threadIdx.x == 0) *reinterpret_cast<std::uint32_t*>(to.scales) = made.bits;
      const float factor = made.poisoned ? __uint_as_float(kQuietNan) : made.factor;
#pragma unroll
      for (int p = 0; p < kPairs; ++p) factors[p] = factor;
    } else if constexpr (kOutput == RowOutput::given) {
      const float factor = *plan.inv_scale;
      if (to.first && pairs[0] == 0) *reinterpret_cast<float*>(plan.scales) = 1.0F / factor;
#pragma unroll
      for (int p = 0; p < kPairs; ++p) factors[p] = factor;
    } else {
      constexpr bool kBytes = kOutput == RowOutput::block32;
      constexpr int kLanes = (kBytes ? 32 : 128) / kRowValues;
      constexpr FastKind kKind = kBytes ? FastKind::e8m0 : FastKind::quotient;
      std::uint32_t bits[kPairs];
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
#pragma unroll
        for (int step = 1; step < kLanes; step *= 2)
          most[p] = max(most[p], __shfl_xor_sync(0xFFFFFFFFu, most[p], step));
        const MadeScale made = fast_tile_scale<kKind>(plan.scale, most[p]);
        bits[p] = made.bits;
        factors[p] = made.poisoned ? __uint_as_float(kQuietNan) : made.factor;
        if (!kBytes && has[p] && threadIdx.x % kLanes == 0)
          *reinterpret_cast<std::uint32_t*>(to.scales + pairs[p] / kLanes * plan.scale_stride) =
              made.bits;
      }
      if constexpr (kBytes) store_bytes<kPairs>(plan, to.scales, pairs, has, bits);
    }
  }
#pragma unroll
  for (int p = 0; p < kPairs; ++p)
    if (has[p]) store_sixteen<kOutput>(to.codes, pairs[p], x + p * kRowValues, factors[p]);
}

}  // namespace octavo::cuda
