// Weights and dS of a tile in the registers of wgmma's sums: 64 keys of a warpgroup by the queries
// of a tile. Element 4 j + i of a thread is of key 16 warp + lane / 4 + (i < 2 ? 0 : 8) and query
// 8 j + 2 (lane % 4) + i % 2.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "octavo/backend/attention_dropout_mask.h"
#include "octavo/backend/cuda/attention/backward/backward_plan.h"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

// 2^x within 2^-22 of itself; 0 for -inf.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Within 2^-21 of the scale of its values, 1.
__device__ __forceinline__ float tanh_of(float x) {
  constexpr float kTwoLog2E = 2.0F * 1.44269504F;
  return 1.0F - __fdividef(2.0F, 1.0F + exp2_approx(fminf(x * kTwoLog2E, 64.0F)));
}

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Where a thread's elements lie.
struct BackwardPlace {
  int key, query;  // of element 0
  __device__ __forceinline__ static BackwardPlace of(int first_key, int first_query) {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) / 32 % 4;
    return {first_key + 16 * warp + lane / 4, first_query + 2 * (lane % 4)};
  }
};

// Scores, sums of products as they come, to weights, in place. `minus_lse` is of the tile.
template <bool kCapped, int kCount>
__device__ __forceinline__ void scores_to_weights(float (&scores)[kCount], const BackwardPlan& plan,
                                                  SharedAddress minus_lse) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    const float2 lse = load_shared_pair(minus_lse + (8 * j + 2 * (lane % 4)) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& s = scores[4 * j + i];
      const float from = i % 2 == 0 ? lse.x : lse.y;
      if constexpr (kCapped)
        s = exp2_approx(fmaf(tanh_of(s * plan.over_cap), plan.soft_cap, from));
      else
        s = exp2_approx(fmaf(s, plan.log2_scale, from));
    }
  }
}

// Zero where a row does not see a key.
template <int kCount>
__device__ __forceinline__ void clear_hidden(float (&weights)[kCount], const BackwardBand& band,
                                             BackwardPlace at) {
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    const int key = at.key + (e % 4 < 2 ? 0 : 8), query = at.query + e / 4 * 8 + e % 2;
    if (!band.sees(query, key)) weights[e] = 0.0F;
  }
}

// Which weights are kept, a bit each. A draw is of four neighbouring keys, which are of four lanes:
// each lane makes a quarter of the draws, and the others take their bits from it.
template <int kCount>
struct KeptWeights {
  static constexpr int kWords = kCount / 32;
  std::uint32_t bits[kWords];

  __device__ __forceinline__ void draw(const AttentionDropout& dropout, int batch, int head,
                                       BackwardPlace at) {
    const unsigned lane = threadIdx.x % 32, mine = lane / 4 % 4;
    const std::uint32_t threshold = dropout.threshold();
    std::uint32_t drawn[kWords];
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      drawn[word] = bits[word] = 0;
#pragma unroll 1
      for (int part = 0; part < 8; ++part) {
        const int j = 8 * word + 4 * (part / 4) + static_cast<int>(mine), half = part / 2 % 2;
        drawn[word] |= dropout_kept(threshold, dropout.seed, batch, head,
                                    at.query + 8 * j + part % 2, (at.key + 8 * half) / kDropoutKeys)
                       << 4 * part;
      }
    }
    // Element e = 4 j + i is bit e of the words.
#pragma unroll
    for (int word = 0; word < kWords; ++word)
#pragma unroll
      for (unsigned other = 0; other < 4; ++other) {
        const std::uint32_t theirs =
            __shfl_sync(0xFFFFFFFFu, drawn[word], (lane & 0b10011u) | other << 2) >> mine;
#pragma unroll
        for (int part = 0; part < 8; ++part) {
          const int j = 4 * (part / 4) + static_cast<int>(other), i = 2 * (part / 2 % 2) + part % 2;
          bits[word] |= (theirs >> 4 * part & 1u) << (4 * j + i);
        }
      }
  }
  [[nodiscard]] __device__ __forceinline__ bool operator[](int e) const {
    return (bits[e / 32] >> e % 32 & 1u) != 0;
  }
};

// dP to dS without the softmax scale, in place: P (dP - delta), and the slope of a soft cap.
template <bool kCapped, bool kDrops, int kCount>
__device__ __forceinline__ void gradients_of_scores(float (&d_p)[kCount],
                                                    const float (&weights)[kCount],
                                                    const BackwardPlan& plan,
                                                    SharedAddress minus_lse, SharedAddress delta,
                                                    const KeptWeights<kCount>& kept) {
  const unsigned lane = threadIdx.x % 32;
  [[maybe_unused]] const float factor = static_cast<float>(plan.dropout.factor());
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    const float2 along = load_shared_pair(delta + (8 * j + 2 * (lane % 4)) * 4);
    float2 lse{};
    if constexpr (kCapped) lse = load_shared_pair(minus_lse + (8 * j + 2 * (lane % 4)) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int e = 4 * j + i;
      float d = d_p[e];
      if constexpr (kDrops) d = kept[e] ? d * factor : 0.0F;
      d = weights[e] * (d - (i % 2 == 0 ? along.x : along.y));
      if constexpr (kCapped) {
        // The score is what the weight is a power of; where that is 0, so is dS.
        const float capped =
            (log2_approx(weights[e]) - (i % 2 == 0 ? lse.x : lse.y)) / plan.soft_cap;
        d = weights[e] == 0.0F ? 0.0F : d * (1.0F - capped * capped);
      }
      d_p[e] = d;
    }
  }
}

// Sums as A of the next product: bf16 pairs, four registers for sixteen queries.
template <int kCount>
__device__ __forceinline__ void pack(const float (&sums)[kCount],
                                     std::uint32_t (&packed)[kCount / 2]) {
#pragma unroll
  for (int e = 0; e < kCount; e += 2) packed[e / 2] = pack_bf16(sums[e], sums[e + 1]);
}

}  // namespace octavo::cuda
