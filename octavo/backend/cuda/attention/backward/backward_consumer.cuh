// A consumer warpgroup of the backward kernel: 64 keys against tiles of queries.
#pragma once

#include "octavo/backend/cuda/attention/backward/backward_shape.cuh"
#include "octavo/backend/cuda/attention/backward/backward_weights.cuh"
#include "octavo/backend/cuda/attention/backward/backward_wgmma.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"

namespace octavo::cuda {

template <typename Shape, bool kCapped, bool kDrops>
class BackwardConsumer {
 public:
  static constexpr int kSums = Shape::kSums;

  __device__ __forceinline__ BackwardConsumer(const BackwardPlan& plan, const BackwardWork& work,
                                              SharedAddress base)
      : plan_(plan),
        work_(work),
        base_(base),
        group_(threadIdx.x / 128 - 1),
        lane_(threadIdx.x % 32),
        step_(BackwardStep::of(plan, work)) {}

  __device__ __forceinline__ void run(int steps) {
    float d_k[Shape::kD / 2], d_v[Shape::kD / 2];
#pragma unroll
    for (int i = 0; i < Shape::kD / 2; ++i) d_k[i] = d_v[i] = 0.0F;
    if (steps > 0) go_through(steps, d_k, d_v);
    write(plan_.d_k, d_k, plan_.scale);
    write(plan_.d_v, d_v, 1.0F);
  }

 private:
  __device__ __forceinline__ SharedAddress barrier(unsigned which) const {
    return base_ + Shape::kBarriers + 8 * which;
  }
  __device__ __forceinline__ void arrive(unsigned which) const {
    if (lane_ == 0) mbarrier_arrive(barrier(which));
  }

  __device__ __forceinline__ void go_through(int steps, float (&d_k)[Shape::kD / 2],
                                             float (&d_v)[Shape::kD / 2]) {
    float s[kSums], d_p[kSums];
    std::uint32_t packed[kSums / 2];
    KeptWeights<kSums> kept;
    mbarrier_wait(barrier(kKeysFull), 0);
    clear_keys();
    wait_queries(0);
    scores(0, s);
    wgmma_wait<0>();
    wgmma_fence_operand(s);
    weigh(0, s, packed, kept);
    wait_gradients(0);
    add_values(0, packed, d_v);
    if constexpr (Shape::kIsTight) wgmma_wait<0>();
    gradients_of_weights(0, d_p);
    wgmma_wait<0>();
    wgmma_fence_operand(d_p);
    wgmma_fence_operand(d_v);
    // Nothing is in flight where the loop begins: ptxas serializes wgmmas that are in flight over
    // its edge.
    for (int t = 0;; ++t) {
      const unsigned stage = t % 2;
      gradients_of_scores<kCapped, kDrops>(d_p, s, plan_, row_numbers(Shape::kLse, stage),
                                           row_numbers(Shape::kDelta, stage), kept);
      pack(d_p, packed);
      share(stage, packed);
      arrive(kOEmpty + stage);
      add_keys(stage, packed, d_k);
      if (t + 1 == steps) break;
      step_.next(work_);
      wait_queries(t + 1);
      scores(t + 1, s);
      float d_q[32];
      mbarrier_wait(barrier(kSFull + stage), static_cast<unsigned>(t) / 2 % 2);
      gradients_of_queries(stage, d_q);
      wgmma_wait<1>();
      wgmma_fence_operand(d_k);
      wgmma_fence_operand(s);
      arrive(kQEmpty + stage);
      weigh(t + 1, s, packed, kept);
      wait_gradients(t + 1);
      add_values(t + 1, packed, d_v);
      wgmma_wait<1>();
      wgmma_fence_operand(d_q);
      hand_over(t, d_q);
      if constexpr (Shape::kIsTight) wgmma_wait<0>();
      gradients_of_weights(t + 1, d_p);
      wgmma_wait<0>();
      wgmma_fence_operand(d_p);
      wgmma_fence_operand(d_v);
    }
    const int last = steps - 1;
    float d_q[32];
    mbarrier_wait(barrier(kSFull + last % 2), static_cast<unsigned>(last) / 2 % 2);
    gradients_of_queries(last % 2, d_q);
    wgmma_wait<0>();
    wgmma_fence_operand(d_q);
    wgmma_fence_operand(d_k);
    hand_over(last, d_q);
  }

  __device__ __forceinline__ SharedAddress row_numbers(unsigned place, unsigned stage) const {
    return base_ + place + stage * Shape::kRowNumbers;
  }

  // Zeroes rows [first, rows of the tile) of what TMA loaded: padding may hold anything, and zero
  // times NaN is NaN.
  __device__ __forceinline__ void clear_rows(SharedAddress tile, int first, int rows) const {
    const int thread = static_cast<int>(threadIdx.x) - 128, lines = rows - first;
    for (int i = thread; i < lines * 8 * Shape::kBoxes; i += 128 * kBackwardWarpgroups) {
      const int box = i / (lines * 8), at = i % (lines * 8);
      asm volatile("st.shared.v4.f32 [%0], {%1, %1, %1, %1};" ::"r"(
                       tile + (box * rows + first + at / 8) * kRowBytes + at % 8 * 16),
                   "f"(0.0F)
                   : "memory");
    }
    fence_proxy_async();
    named_barrier_sync(1, 128 * kBackwardWarpgroups);
  }
  __device__ __forceinline__ void clear_keys() const {
    const int first = work_.block * kBackwardKeys, real = work_.band.keys - first;
    if (real >= kBackwardKeys || first + real >= plan_.keys) return;
    clear_rows(base_ + Shape::kK, max(real, 0), kBackwardKeys);
    clear_rows(base_ + Shape::kV, max(real, 0), kBackwardKeys);
  }
  __device__ __forceinline__ void clear_queries(SharedAddress tile) const {
    const int first = step_.tile * Shape::kQueries, real = work_.band.rows - first;
    if (real >= Shape::kQueries || first + real >= plan_.queries) return;
    clear_rows(tile, real, Shape::kQueries);
  }
  __device__ __forceinline__ void wait_queries(int t) const {
    mbarrier_wait(barrier(kQFull + t % 2), static_cast<unsigned>(t) / 2 % 2);
    clear_queries(base_ + Shape::kQ + t % 2 * Shape::kQueryBytes);
  }
  __device__ __forceinline__ void wait_gradients(int t) const {
    mbarrier_wait(barrier(kOFull + t % 2), static_cast<unsigned>(t) / 2 % 2);
    clear_queries(base_ + Shape::kO + t % 2 * Shape::kQueryBytes);
  }

  // sums = rows of the warpgroup's keys times a tile's rows, transposed: S^T and dP^T.
  __device__ __forceinline__ void multiply_rows(SharedAddress keys, SharedAddress queries,
                                                float (&sums)[kSums]) const {
    const std::uint64_t rows = smem_descriptor(keys + group_ * 64 * kRowBytes),
                        cols = smem_descriptor(queries);
    wgmma_fence_operand(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Shape::kD / 16; ++k)
      wgmma<Mma::bf16>(sums, rows + (k / 4 * Shape::kKeyBox + k % 4 * kMmaBytes) / 16,
                       cols + (k / 4 * Shape::kQueryBox + k % 4 * kMmaBytes) / 16, k != 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void scores(int t, float (&s)[kSums]) const {
    multiply_rows(base_ + Shape::kK, base_ + Shape::kQ + t % 2 * Shape::kQueryBytes, s);
  }
  __device__ __forceinline__ void gradients_of_weights(int t, float (&d_p)[kSums]) const {
    multiply_rows(base_ + Shape::kV, base_ + Shape::kO + t % 2 * Shape::kQueryBytes, d_p);
  }

  // S to P; what dV takes of it goes to `packed`.
  __device__ __forceinline__ void weigh(int t, float (&s)[kSums],
                                        std::uint32_t (&packed)[kSums / 2],
                                        KeptWeights<kSums>& kept) const {
    const int key = work_.block * kBackwardKeys, query = step_.tile * Shape::kQueries;
    const BackwardPlace at = BackwardPlace::of(key + static_cast<int>(group_) * 64, query);
    scores_to_weights<kCapped>(s, plan_, row_numbers(Shape::kLse, t % 2));
    if (!work_.band.is_full(query, query + Shape::kQueries, key, key + kBackwardKeys))
      clear_hidden(s, work_.band, at);
    if constexpr (kDrops) {
      kept.draw(plan_.dropout, work_.batch, step_.head, at);
      const auto factor = static_cast<float>(plan_.dropout.factor());
      float dropped[kSums];
#pragma unroll
      for (int e = 0; e < kSums; ++e) dropped[e] = kept[e] ? s[e] * factor : 0.0F;
      pack(dropped, packed);
    } else {
      pack(s, packed);
    }
  }

  // dV or dK += packed weights or dS times the tile's rows.
  __device__ __forceinline__ void add_rows(SharedAddress tile,
                                           const std::uint32_t (&packed)[kSums / 2],
                                           float (&sums)[Shape::kD / 2]) const {
    const std::uint64_t cols = smem_descriptor_along_k(tile, Shape::kQueryBox);
    wgmma_fence_operand(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Shape::kQueries / 16; ++k)
      wgmma_rs_along_k(sums, packed + 4 * k, cols + k * kAlongKStep);
    wgmma_commit();
  }
  __device__ __forceinline__ void add_values(int t, const std::uint32_t (&packed)[kSums / 2],
                                             float (&d_v)[Shape::kD / 2]) const {
    add_rows(base_ + Shape::kO + t % 2 * Shape::kQueryBytes, packed, d_v);
  }
  __device__ __forceinline__ void add_keys(unsigned stage, const std::uint32_t (&packed)[kSums / 2],
                                           float (&d_k)[Shape::kD / 2]) const {
    add_rows(base_ + Shape::kQ + stage * Shape::kQueryBytes, packed, d_k);
  }

  // dS to shared memory, queries by keys, for both warpgroups.
  __device__ __forceinline__ void share(unsigned stage,
                                        const std::uint32_t (&packed)[kSums / 2]) const {
    const unsigned warp = threadIdx.x / 32 % 4, matrix = lane_ / 8, row = lane_ % 8;
    const SharedAddress to =
        base_ + Shape::kS + (stage * kBackwardWarpgroups + group_) * Shape::kGradientBox +
        (8 * (matrix / 2) + row) * kRowBytes + ((2 * warp + matrix % 2) ^ row) * 16;
#pragma unroll
    for (int k = 0; k < kSums / 8; ++k) {
      const std::uint32_t from[4] = {packed[4 * k], packed[4 * k + 1], packed[4 * k + 2],
                                     packed[4 * k + 3]};
      stmatrix_x4<true>(to + k * 16 * kRowBytes, from);
    }
    fence_proxy_async();
    __syncwarp();
    arrive(kSFull + stage);
  }

  // dQ = dS K: 64 columns of it, or 64 rows where D is 64.
  __device__ __forceinline__ void gradients_of_queries(unsigned stage, float (&d_q)[32]) const {
    const SharedAddress d_s = base_ + Shape::kS +
                              stage * kBackwardWarpgroups * Shape::kGradientBox +
                              (Shape::kBoxes == 1 ? group_ * 64 * kRowBytes : 0);
    const std::uint64_t rows = smem_descriptor(d_s);
    const std::uint64_t cols = smem_descriptor_along_k(
        base_ + Shape::kK + (Shape::kBoxes == 1 ? 0 : group_ * Shape::kKeyBox), Shape::kKeyBox);
    wgmma_fence_operand(d_q);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBackwardKeys / 16; ++k)
      wgmma_along_k(d_q, rows + (k / 4 * Shape::kGradientBox + k % 4 * kMmaBytes) / 16,
                    cols + k * kAlongKStep, k != 0);
    wgmma_commit();
  }

  // dQ to the warp that adds it.
  __device__ __forceinline__ void hand_over(int t, const float (&d_q)[32]) const {
    const unsigned buffer = t % 2 * kBackwardWarpgroups + group_;
    if (t > 1) mbarrier_wait(barrier(kPartEmpty + buffer), static_cast<unsigned>(t / 2 - 1) % 2);
    const SharedAddress to =
        base_ + Shape::kPart + buffer * Shape::kPartBytes + threadIdx.x % 128 * 16;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 2048), "f"(d_q[4 * i]),
                   "f"(d_q[4 * i + 1]), "f"(d_q[4 * i + 2]), "f"(d_q[4 * i + 3])
                   : "memory");
    fence_proxy_async();
    __syncwarp();
    arrive(kPartFull + buffer);
  }

  __device__ __forceinline__ void write(const BackwardResult& to,
                                        const float (&sums)[Shape::kD / 2], float factor) const {
    const BackwardPlace at =
        BackwardPlace::of(work_.block * kBackwardKeys + static_cast<int>(group_) * 64, 0);
    unsigned char* const head = to.head(work_.batch, work_.kv_head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = at.key + 8 * half;
      if (key >= plan_.keys) continue;
      unsigned char* const row = head + key * to.row_pitch;
#pragma unroll
      for (int j = 0; j < Shape::kD / 8; ++j)
        to.store_pair(row, at.query + 8 * j, sums[4 * j + 2 * half] * factor,
                      sums[4 * j + 2 * half + 1] * factor);
    }
  }

  const BackwardPlan& plan_;
  const BackwardWork& work_;
  const SharedAddress base_;
  const unsigned group_, lane_;
  BackwardStep step_;
};

}  // namespace octavo::cuda
