// The kernel of cuda_gemm_fp8.cu: one template, whose versions are switches. It has what its
// versions are about and no more: e4m3 by e4m3 with 1 x 128 scales of A and 128 x 128 scales of B,
// bf16 out, rows a multiple of 64, columns of 256, K of 128.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "bench/ladder/cuda_gemm_fp8_parts.cuh"
#include "octavo/backend/cuda/hopper/cluster.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/setmaxnreg.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda::ladder {

// ---- what brings

// One thread: operands and the scales of rows. Of rows that a cluster shares each block fetches its
// part for all of them.
template <Version kIs>
__device__ __forceinline__ void bring_stage(const Product& of, const Ring<kIs>& ring, int stage,
                                            const Walk<kIs>& tile, int block, int rank) {
  using K = Kernel<kIs>;
  constexpr int kAll = (1 << kIs.blocks) - 1;
  const SharedAddress full = ring.is_full(stage);
  constexpr bool kScales = kIs.lone != Lone::multiplied;
  barrier_expect(full, K::kStageBytes + (kScales ? K::kScaleBytes : 0));
  const auto bring = [&](SharedAddress to, const CUtensorMap& map, int first, auto share) {
    if constexpr (share() > 0)
      copy_box_to(to + rank * share() * kRowBytes, map, block * kRowBytes, first + rank * share(),
                  full, kAll);
    else
      copy_box(to, map, block * kRowBytes, first, full);
  };
  constexpr bool kShares = kIs.blocks > 1;
  constexpr int kRowShare = kShares && K::kSharesRows ? K::kRows / kIs.blocks : 0,
                kColShare = kShares && !K::kSharesRows ? K::kCols / kIs.blocks : 0;
  bring(ring.rows(stage), of.rows, tile.row, std::integral_constant<int, kRowShare>{});
  bring(ring.cols(stage), of.cols, tile.col, std::integral_constant<int, kColShare>{});
  if constexpr (kScales)
    copy_bytes(ring.row_scales(stage), of.row_scales + block * of.row_pitch + tile.row,
               K::kScaleBytes, full);
}

template <Version kIs>
__device__ __forceinline__ void bring_tiles(const Product& of, const Ring<kIs>& ring, int rank) {
  Place<kIs> at;
  for (Walk<kIs> walk(of); !walk.is_over(); walk.next()) {
    walk.find(of, rank);
    for (int block = walk.item.first; block < walk.item.end; ++block, at.next()) {
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      bring_stage(of, ring, at.stage, walk, block, rank);
    }
  }
}

// A warp: the scale of B.
template <Version kIs>
__device__ __forceinline__ void bring_lone(const Product& of, const Ring<kIs>& ring, int rank,
                                           int lane) {
  Place<kIs> at;
  for (Walk<kIs> walk(of); !walk.is_over(); walk.next()) {
    walk.find(of, rank);
    using K = Kernel<kIs>;
    const auto lone_of = [&](int i) {
      return LoneScales<Lone::shuffled>(walk.col_scales(of, i * K::kLoneCols),
                                        walk.item.end - walk.item.first, lane);
    };
    LoneScales<Lone::shuffled> lones[] = {lone_of(0), lone_of(1), lone_of(2)};
    for (int block = walk.item.first; block < walk.item.end; ++block, at.next()) {
      float scales[K::kLones];
#pragma unroll
      for (int i = 0; i < K::kLones; ++i) scales[i] = lones[i].take();
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      if (lane != 0) continue;
#pragma unroll
      for (int i = 0; i < K::kLones; ++i) store_shared(ring.lone(at.stage) + 4 * i, scales[i]);
      barrier_arrive(ring.is_full(at.stage));
    }
  }
}

// Two warps: the scales of rows, four for a lane, times that of B. They are two blocks ahead of
// memory.
template <Version kIs>
__device__ __forceinline__ void bring_multiplied(const Product& of, const Ring<kIs>& ring, int rank,
                                                 int which, int lane) {
  Place<kIs> at;
  const int first = (which * 32 + lane) * 4;
  const bool is_one = first < Kernel<kIs>::kRows;
  for (Walk<kIs> walk(of); !walk.is_over(); walk.next()) {
    walk.find(of, rank);
    LoneScales<Lone::shuffled> lone(walk.col_scales(of), walk.item.end - walk.item.first, lane);
    const auto load = [&](int block) {
      return is_one && block < walk.item.end
                 ? __ldg(reinterpret_cast<const float4*>(of.row_scales + block * of.row_pitch +
                                                         walk.row + first))
                 : float4{};
    };
    float4 now = load(walk.item.first), next = load(walk.item.first + 1);
    for (int block = walk.item.first; block < walk.item.end; ++block, at.next()) {
      const float by = lone.take();
      const float4 after = load(block + 2);
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      if (is_one)
        asm volatile(
            "st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(ring.row_scales(at.stage) + first * 4),
            "f"(now.x * by), "f"(now.y * by), "f"(now.z * by), "f"(now.w * by)
            : "memory");
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.is_full(at.stage));
      now = next;
      next = after;
    }
  }
}

// One thread: that sums were left.
template <Version kIs>
__device__ __forceinline__ void announce_all(const Product& of, const Ring<kIs>& ring, int rank) {
  const int cluster = static_cast<int>(blockIdx.x) / kIs.blocks;
  if (!of.schedule.leaves_sums(cluster)) return;
  for (int group = 0; group < kIs.groups; ++group)
    announce_sums(of, slot_of<kIs>(cluster, rank, group), ring.has_left(group));
}

// ---- what multiplies

template <Version kIs>
__device__ __forceinline__ void release(const Ring<kIs>& ring, int stage, int lane) {
  if constexpr (kIs.blocks > 1) {
    if (lane < kIs.blocks) barrier_arrive_at(ring.is_empty(stage), lane);
  } else if constexpr (Kernel<kIs>::kLoadsAhead) {
    if (lane == 0) barrier_arrive(ring.is_empty(stage));
  }
}

// 64 x 128 sums as bf16, as the copy engine stores them.
template <Version kIs>
__device__ __forceinline__ void lay_out(SharedAddress staged, int thread,
                                        const float (&sums)[Kernel<kIs>::kSums]) {
  using K = Kernel<kIs>;
  const int lane = thread % 32, line = thread / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
  const SharedAddress first = staged + line * kRowBytes + ((lane / 16) ^ (lane % 8)) * 16;
#pragma unroll
  for (int j = 0; j < K::kSums / 4; j += 2) {  // two matrices across; 64 columns are a box
    std::uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(sums[K::place(4 * j + 2 * i)], sums[K::place(4 * j + 2 * i + 1)]);
      four[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
    store_matrices<false>((first ^ (j % 8 * 16)) + j / 8 * kMmaRows * kRowBytes, four);
  }
}

// Waves `begin` to `end` of a warpgroup, by way of shared memory and the copy engine. kBehind
// stores of the tile before may go on.
template <Version kIs, int kBehind>
__device__ __forceinline__ void store_waves(const Product& of, const Ring<kIs>& ring, int thread,
                                            int group, int row, int col, int begin, int end,
                                            const float (&sums)[kIs.waves][Kernel<kIs>::kSums]) {
  using K = Kernel<kIs>;
  // Not to be worked out before: it would be kept in registers all through a product.
  asm volatile("" : "+r"(thread));
  const auto staged = [&](int wave) {
    return ring.base + K::kStagedAt + (group * kIs.waves + wave) * K::kStagedBytes;
  };
  if (thread == 0) stores_read<kBehind>();
  named_sync(1 + group, 128);
#pragma unroll
  for (int wave = begin; wave < end; ++wave) lay_out<kIs>(staged(wave), thread, sums[wave]);
  shared_written();
  named_sync(1 + group, 128);
  if (thread != 0) return;
#pragma unroll
  for (int wave = begin; wave < end; ++wave)
#pragma unroll
    for (int box = 0; box < K::kCols / 64; ++box)
      store_box(of.out, col + 64 * box, row + wave * kIs.groups * kMmaRows,
                staged(wave) + box * kMmaRows * kRowBytes);
  store_commit();
}

template <Version kIs>
__device__ __forceinline__ void multiply_tiles(const Product& of, const Ring<kIs>& ring, int rank,
                                               int group, int thread) {
  using K = Kernel<kIs>;
  const int lane = thread % 32;
  const int scale_at = (group * kMmaRows + thread / 32 * 16 + lane / 4) * 4;
  constexpr int kApart = kIs.groups * kMmaRows;  // rows from wave to wave
  float run[K::kSums], sums[kIs.waves][K::kSums];
#pragma unroll
  for (int s = 0; s < K::kSums; ++s) run[s] = 0.0F;
  Place<kIs> at;
  for (Walk<kIs> walk(of); !walk.is_over(); walk.next()) {
    walk.find(of, rank);
    if (K::kLoadsAhead && walk.row + group * kMmaRows >= of.row_count) {
      // All rows hang over the edge.
      for (int block = walk.item.first; block < walk.item.end; ++block, at.next()) {
        barrier_wait(ring.is_full(at.stage), at.phase);
        release(ring, at.stage, lane);
      }
      if (kIs.dealt && walk.item.unfinished) barrier_arrive(ring.has_left(group));
      continue;
    }
    const int slot = slot_of<kIs>(walk.cluster, rank, group);
    if (kIs.dealt && walk.item.goes_on) {
      take_sums(of, slot - slot_of<kIs>(1, 0, 0), thread, 1 + group, sums[0]);
    } else {
#pragma unroll
      for (int wave = 0; wave < kIs.waves; ++wave)
#pragma unroll
        for (int s = 0; s < K::kSums; ++s) sums[wave][s] = 0.0F;
    }
    LoneScales<kIs.lone> lone(walk.col_scales(of), walk.item.end - walk.item.first, lane);
    // Of the thread's two rows and all columns.
    struct Scales {
      float upper[kIs.waves][K::kLones], lower[kIs.waves][K::kLones];
    };
    const auto load_scales = [&](int stage, int wave, Scales& to) {
      const SharedAddress rows = ring.row_scales(stage) + scale_at + wave * kApart * 4;
      const float above = load_shared(rows), below = load_shared(rows + 8 * 4);
#pragma unroll
      for (int i = 0; i < K::kLones; ++i) {
        float by = 1.0F;
        if constexpr (kIs.lone == Lone::in_ring)
          by = load_shared(ring.lone(stage) + 4 * i);
        else if constexpr (kIs.lone != Lone::multiplied)
          by = lone.take();
        to.upper[wave][i] = kIs.lone == Lone::multiplied ? above : above * by;
        to.lower[wave][i] = kIs.lone == Lone::multiplied ? below : below * by;
      }
    };
    const auto load_all = [&](int stage, Scales& to) {
#pragma unroll
      for (int wave = 0; wave < kIs.waves; ++wave) load_scales(stage, wave, to);
    };
    Scales scales, next;
    if constexpr (kIs.ahead) {
      barrier_wait(ring.is_full(at.stage), at.phase);
      load_all(at.stage, next);
    }
    bool is_full = false;
    constexpr int kCopies = kIs.copies;
#pragma unroll kCopies
    for (int block = walk.item.first; block < walk.item.end; ++block) {
      const Place<kIs> now = at;
      if constexpr (!K::kLoadsAhead) {
        __syncthreads();  // all have read what was there
        if (thread == 0) bring_stage(of, ring, now.stage, walk, block, rank);
      }
      if (!kIs.ahead && !is_full) barrier_wait(ring.is_full(now.stage), now.phase);
      at.next();
      if constexpr (kIs.ahead)
        scales = next;
      else if constexpr (kIs.ready)
        load_all(now.stage, scales);
#pragma unroll
      for (int wave = 0; wave < kIs.waves; ++wave) {
        const unsigned rows = operand_place(ring.rows(now.stage) +
                                            (group * kMmaRows + wave * kApart) * kRowBytes),
                       cols = operand_place(ring.cols(now.stage));
        pin(run);
        mma_begin();
#pragma unroll
        for (unsigned step = 0; step < kRowBytes / kMmaBytes; ++step)
          multiply<Mma::e4m3_e4m3>(run, operand_from(rows + step * kOperandStep),
                                   operand_from(cols + step * kOperandStep), step > 0);
        mma_commit();
        const bool last = wave + 1 == kIs.waves;
        if (K::kLoadsAhead && !kIs.ahead && last)
          is_full = barrier_over(ring.is_full(at.stage), at.phase);
        if (kIs.ahead && last && block + 1 < walk.item.end) {
          barrier_wait(ring.is_full(at.stage), at.phase);
          load_all(at.stage, next);
        }
        if constexpr (!kIs.ready) load_scales(now.stage, wave, scales);
        mma_wait<0>();
        pin(run);
        if (last) release(ring, now.stage, lane);
        const auto add = [&](int s) {
          const int i = s * 2 / K::kLoneCols;
          sums[wave][K::place(s)] =
              __fmaf_rn(run[s], s % 4 < 2 ? scales.upper[wave][i] : scales.lower[wave][i],
                        sums[wave][K::place(s)]);
        };
#pragma unroll
        for (int s = 0; s < K::kSums; ++s)
          if (!kIs.by_row || s % 4 < 2) add(s);
#pragma unroll
        for (int s = 0; s < K::kSums; ++s)
          if (kIs.by_row && s % 4 >= 2) add(s);
        pin(sums[wave]);  // before the next run begins: it has the registers of this one
      }
    }
    if (kIs.dealt && walk.item.unfinished) {
      leave_sums(of, slot, thread, sums[0]);
      barrier_arrive(ring.has_left(group));
      continue;
    }
    const int row = walk.row + group * kMmaRows;
    if constexpr (kIs.together) {
      store_waves<kIs, 0>(of, ring, thread, group, row, walk.col, 0, kIs.waves, sums);
    } else {
#pragma unroll
      for (int wave = 0; wave < kIs.waves; ++wave)
        store_waves<kIs, kIs.waves - 1>(of, ring, thread, group, row, walk.col, wave, wave + 1,
                                        sums);
    }
  }
  if (thread == 0) stores_done();
}

__device__ __forceinline__ long long nanoseconds() {
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

template <typename K>
__global__ void __launch_bounds__(K::kThreads, 1)
    product_kernel(const __grid_constant__ Product of) {
  constexpr Version kIs = K::kVersion;
  extern __shared__ unsigned char memory[];
  __shared__ long long begin[2];
  const Ring<kIs> ring{(shared_address(memory) + 1023) & ~1023u};
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = kIs.blocks > 1 ? static_cast<int>(rank_in_cluster()) : 0;
  if (thread == 0) {
    begin[0] = clock64();
    begin[1] = nanoseconds();
    for (int stage = 0; stage < kIs.stages; ++stage) {
      barrier_init(ring.is_full(stage), 1 + K::kScaleWarps);
      barrier_init(ring.is_empty(stage), kIs.groups * 4 * kIs.blocks);  // a warp, once each
    }
    for (int of_group = 0; of_group < kIs.groups; ++of_group)
      barrier_init(ring.has_left(of_group), 128);
    barriers_ready();
  }
  const int group = K::kThreads > 128 ? __shfl_sync(0xFFFFFFFFu, thread / 128, 0) : 0;
  if constexpr (kIs.blocks > 1)
    cluster_sync();
  else
    __syncthreads();

  if (K::kLoadsAhead && group == kIs.groups) {
    if constexpr (K::kMovesRegisters) registers_down<K::kDown>();
    const int warp = thread / 32 % 4, lane = thread % 32;
    if (warp == 0 && lane == 0) bring_tiles(of, ring, rank);
    if constexpr (kIs.lone == Lone::in_ring) {
      if (warp == 1) bring_lone(of, ring, rank, lane);
    }
    if constexpr (kIs.lone == Lone::multiplied) {
      if (warp == 1 || warp == 2) bring_multiplied(of, ring, rank, warp - 1, lane);
    }
    if constexpr (kIs.dealt) {
      if (warp == 3 && lane == 0) announce_all(of, ring, rank);
    }
  } else {
    if constexpr (K::kMovesRegisters) registers_up<K::kUp>();
    multiply_tiles(of, ring, rank, group, thread % 128);
    if (thread == 0 && blockIdx.x == 0) {
      of.spent[0] = clock64() - begin[0];
      of.spent[1] = nanoseconds() - begin[1];
    }
  }
  // A block must be there while others of its cluster write to it or arrive at its barriers.
  if constexpr (kIs.blocks > 1) {
    __syncwarp();
    cluster_sync();
  }
}

}  // namespace octavo::cuda::ladder
