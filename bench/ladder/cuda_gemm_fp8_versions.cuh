// The kernel of cuda_gemm_fp8.cu: one template, whose versions are switches. It has what its
// versions are about and no more: e4m3 by e4m3 with 1 x 128 scales of A and 128 x 128 scales of B,
// bf16 out, rows a multiple of 64, columns of 256, K of 128.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "octavo/backend/cuda/device/hopper.cuh"
#include "octavo/backend/cuda/device/wgmma.cuh"

namespace octavo::cuda::ladder {

// How a thread comes by the scale of B, one number for a tile and a block of K.
enum class Lone {
  when_needed,  // every thread loads it from memory, for every block
  block_ahead,  // the same, one block before its use
  shuffled,  // a lane loads that of every 32nd block, up to 32 blocks before; shuffles give it to
             // all
  in_ring,   // a warp of its own brings it into the stage
};

struct Version {
  int groups = 1;           // warpgroups that multiply, 64 rows of a tile each
  int stages = 1;           // one: by the warpgroup that multiplies; more: another loads ahead
  bool persistent = false;  // as many blocks as run at one time; tiles in strips
  int blocks = 1;           // of a cluster: they have the same rows and neighbouring columns
  Lone lone = Lone::when_needed;
  bool exchanged = false;  // sums lie where their neighbour's run would, in the other bank
};

// A product. Maps are for the copy engine: boxes are lines of 128 bytes, swizzled, as many of A as
// a block fetches, 128 of B and 64 of the result.
struct Product {
  CUtensorMap rows{}, cols{}, out{};
  const float* row_scales = nullptr;  // of A, a block of K after the other, row_pitch numbers each
  const float* col_scales = nullptr;  // of B, k_blocks numbers for every 128 columns
  int row_pitch = 0, row_count = 0, k_blocks = 0;
  int unit_rows = 0, unit_cols = 0;  // units: a tile for each block of a cluster
  long long* cycles = nullptr;       // that the first block took
};

template <Version kIs>
struct Kernel {
  static constexpr Version kVersion = kIs;
  static constexpr bool kLoadsAhead = kIs.stages > 1;
  static constexpr int kRows = kIs.groups * kMmaRows, kCols = 128, kSums = kCols / 2;
  static constexpr int kThreads = (kIs.groups + (kLoadsAhead ? 1 : 0)) * 128;
  static constexpr int kRowTile = kRows * kRowBytes, kStageBytes = kRowTile + kCols * kRowBytes;
  static constexpr int kScaleBytes = kRows * 4, kStagedBytes = kMmaRows * kCols * 2;
  // In shared memory, from a multiple of 1024 on: stages; results; scales; barriers.
  static constexpr int kStagedAt = kIs.stages * kStageBytes,
                       kScalesAt = kStagedAt + kIs.groups * kStagedBytes,
                       kLoneAt = kScalesAt + kIs.stages * kScaleBytes,
                       kFullAt = kLoneAt + (kIs.stages * 4 + 7) / 8 * 8,
                       kEmptyAt = kFullAt + kIs.stages * 8,
                       kSharedBytes = kEmptyAt + kIs.stages * 8 + 1024;
  // Registers of a block are 64 K, 128 for each of 512 threads: too few for those that multiply.
  static constexpr bool kMovesRegisters = kIs.groups == 3;
  static constexpr int kUp = 152, kDown = 56;
  // Where element s of a run is among the sums.
  static constexpr int place(int s) { return kIs.exchanged ? s ^ 1 : s; }
};

template <Version kIs>
struct Ring {
  using K = Kernel<kIs>;
  SharedAddress base;
  __device__ __forceinline__ SharedAddress rows(int stage) const {
    return base + stage * K::kStageBytes;
  }
  __device__ __forceinline__ SharedAddress cols(int stage) const {
    return rows(stage) + K::kRowTile;
  }
  __device__ __forceinline__ SharedAddress row_scales(int stage) const {
    return base + K::kScalesAt + stage * K::kScaleBytes;
  }
  __device__ __forceinline__ SharedAddress lone(int stage) const {
    return base + K::kLoneAt + stage * 4;
  }
  __device__ __forceinline__ SharedAddress is_full(int stage) const {
    return base + K::kFullAt + stage * 8;
  }
  __device__ __forceinline__ SharedAddress is_empty(int stage) const {
    return base + K::kEmptyAt + stage * 8;
  }
};

// A stage of the ring, and whether it is an even or an odd time round.
template <Version kIs>
struct Place {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kIs.stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The tiles of a block, one after the other. A grid of one block a tile has one each.
template <Version kIs>
struct Walk {
  int unit, units, step, row = 0, col = 0;

  __device__ __forceinline__ explicit Walk(const Product& of)
      : unit(static_cast<int>(blockIdx.x) / kIs.blocks),
        units(of.unit_rows * of.unit_cols),
        step(static_cast<int>(gridDim.x) / kIs.blocks) {}
  [[nodiscard]] __device__ __forceinline__ bool is_over() const { return unit >= units; }
  __device__ __forceinline__ void next() { unit += step; }
  __device__ __forceinline__ void find(const Product& of, int rank) {
    int unit_row = unit / of.unit_cols, unit_col = unit % of.unit_cols;
    if constexpr (kIs.persistent) {  // down eight rows, so that tiles of one time share operands
      const int before = unit / (8 * of.unit_cols) * 8, height = min(8, of.unit_rows - before),
                within = unit - before * of.unit_cols;
      unit_row = before + within % height;
      unit_col = within / height;
    }
    row = unit_row * Kernel<kIs>::kRows;
    col = (unit_col * kIs.blocks + rank) * Kernel<kIs>::kCols;
  }
};

template <Lone kLone>
struct LoneScales {  // when_needed
  const float* from;
  __device__ __forceinline__ LoneScales(const float* first, int, int) : from(first) {}
  __device__ __forceinline__ float take() { return __ldg(from++); }
};
template <>
struct LoneScales<Lone::block_ahead> {
  const float* from;
  int left;
  float next;
  __device__ __forceinline__ LoneScales(const float* first, int count, int)
      : from(first), left(count), next(__ldg(first)) {}
  __device__ __forceinline__ float take() {
    const float taken = next;
    ++from;
    if (--left > 0) next = __ldg(from);
    return taken;
  }
};
template <>
struct LoneScales<Lone::shuffled> {
  const float* from;
  int left, used = 0;
  float now = 0.0F, next = 0.0F;
  __device__ __forceinline__ LoneScales(const float* first, int count, int lane)
      : from(first + lane), left(count - lane) {
    load();
    turn();
  }
  __device__ __forceinline__ float take() {
    const float taken = __shfl_sync(0xFFFFFFFFu, now, used);
    if (++used == 32) turn();
    return taken;
  }
  __device__ __forceinline__ void load() {
    if (left > 0) next = __ldg(from);
  }
  __device__ __forceinline__ void turn() {
    now = next;
    used = 0;
    from += 32;
    left -= 32;
    load();
  }
};
template <>
struct LoneScales<Lone::in_ring> {
  __device__ __forceinline__ LoneScales(const float*, int, int) {}
};

// ---- what brings

// One thread: operands and the scales of rows. Of rows that a cluster shares each block fetches its
// part for all of them.
template <Version kIs>
__device__ __forceinline__ void bring_stage(const Product& of, const Ring<kIs>& ring, int stage,
                                            const Walk<kIs>& tile, int block, int rank) {
  using K = Kernel<kIs>;
  constexpr int kShare = K::kRows / kIs.blocks;
  const SharedAddress full = ring.is_full(stage);
  barrier_expect(full, K::kStageBytes + K::kScaleBytes);
  if constexpr (kIs.blocks > 1)
    copy_box_to(ring.rows(stage) + rank * kShare * kRowBytes, of.rows, block * kRowBytes,
                tile.row + rank * kShare, full, (1 << kIs.blocks) - 1);
  else
    copy_box(ring.rows(stage), of.rows, block * kRowBytes, tile.row, full);
  copy_box(ring.cols(stage), of.cols, block * kRowBytes, tile.col, full);
  copy_bytes(ring.row_scales(stage), of.row_scales + block * of.row_pitch + tile.row,
             K::kScaleBytes, full);
}

template <Version kIs>
__device__ __forceinline__ void bring_tiles(const Product& of, const Ring<kIs>& ring, int rank) {
  Place<kIs> at;
  for (Walk<kIs> walk(of); !walk.is_over(); walk.next()) {
    walk.find(of, rank);
    for (int block = 0; block < of.k_blocks; ++block, at.next()) {
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
    LoneScales<Lone::shuffled> lone(of.col_scales + walk.col / 128 * of.k_blocks, of.k_blocks,
                                    lane);
    for (int block = 0; block < of.k_blocks; ++block, at.next()) {
      const float scale = lone.take();
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      if (lane != 0) continue;
      store_shared(ring.lone(at.stage), scale);
      barrier_arrive(ring.is_full(at.stage));
    }
  }
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

// 64 x 128 sums as bf16, by way of shared memory and the copy engine.
template <Version kIs>
__device__ __forceinline__ void store_tile(const Product& of, SharedAddress staged, int thread,
                                           int barrier, int row, int col,
                                           const float (&sums)[Kernel<kIs>::kSums]) {
  using K = Kernel<kIs>;
  // Not to be worked out before: it would be kept in registers all through a product.
  asm volatile("" : "+r"(thread));
  if (thread == 0) stores_read();  // those of the tile before
  named_sync(barrier, 128);
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
  shared_written();
  named_sync(barrier, 128);
  if (thread != 0) return;
  store_box(of.out, col, row, staged);
  store_box(of.out, col + 64, row, staged + kMmaRows * kRowBytes);
  store_commit();
}

template <Version kIs>
__device__ __forceinline__ void multiply_tiles(const Product& of, const Ring<kIs>& ring, int rank,
                                               int group, int thread) {
  using K = Kernel<kIs>;
  const int lane = thread % 32;
  const int scale_at = (group * kMmaRows + thread / 32 * 16 + lane / 4) * 4;
  float run[K::kSums], sums[K::kSums];
#pragma unroll
  for (int s = 0; s < K::kSums; ++s) run[s] = 0.0F;
  Place<kIs> at;
  for (Walk<kIs> walk(of); !walk.is_over(); walk.next()) {
    walk.find(of, rank);
    if (K::kLoadsAhead && walk.row + group * kMmaRows >= of.row_count) {
      for (int block = 0; block < of.k_blocks; ++block, at.next()) {  // all rows hang over the edge
        barrier_wait(ring.is_full(at.stage), at.phase);
        release(ring, at.stage, lane);
      }
      continue;
    }
#pragma unroll
    for (int s = 0; s < K::kSums; ++s) sums[s] = 0.0F;
    LoneScales<kIs.lone> lone(of.col_scales + walk.col / 128 * of.k_blocks, of.k_blocks, lane);
    bool is_full = false;
    for (int block = 0; block < of.k_blocks; ++block) {
      const Place<kIs> now = at;
      if constexpr (!K::kLoadsAhead) {
        __syncthreads();  // all have read what was there
        if (thread == 0) bring_stage(of, ring, now.stage, walk, block, rank);
      }
      if (!is_full) barrier_wait(ring.is_full(now.stage), now.phase);
      const std::uint64_t rows = operand_at(ring.rows(now.stage) + group * kMmaRows * kRowBytes),
                          cols = operand_at(ring.cols(now.stage));
      pin(run);
      mma_begin();
#pragma unroll
      for (int step = 0; step < kRowBytes / kMmaBytes; ++step)
        multiply<Mma::e4m3_e4m3>(run, rows + step * kOperandStep, cols + step * kOperandStep,
                                 step > 0);
      mma_commit();
      at.next();
      if constexpr (K::kLoadsAhead) is_full = barrier_over(ring.is_full(at.stage), at.phase);
      float by;
      if constexpr (kIs.lone == Lone::in_ring)
        by = load_shared(ring.lone(now.stage));
      else
        by = lone.take();
      const float upper = load_shared(ring.row_scales(now.stage) + scale_at) * by,
                  lower = load_shared(ring.row_scales(now.stage) + scale_at + 8 * 4) * by;
      mma_wait<0>();
      pin(run);
      release(ring, now.stage, lane);
#pragma unroll
      for (int s = 0; s < K::kSums; ++s)
        sums[K::place(s)] = __fmaf_rn(run[s], s % 4 < 2 ? upper : lower, sums[K::place(s)]);
      pin(sums);  // before the next run begins: it has the registers of this one
    }
    store_tile<kIs>(of, ring.base + K::kStagedAt + group * K::kStagedBytes, thread, 1 + group,
                    walk.row + group * kMmaRows, walk.col, sums);
  }
  if (thread == 0) stores_done();
}

template <typename K>
__global__ void __launch_bounds__(K::kThreads, 1)
    product_kernel(const __grid_constant__ Product of) {
  constexpr Version kIs = K::kVersion;
  extern __shared__ unsigned char memory[];
  __shared__ long long begin;
  const Ring<kIs> ring{(shared_address(memory) + 1023) & ~1023u};
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = kIs.blocks > 1 ? static_cast<int>(rank_in_cluster()) : 0;
  if (thread == 0) {
    begin = clock64();
    for (int stage = 0; stage < kIs.stages; ++stage) {
      barrier_init(ring.is_full(stage), kIs.lone == Lone::in_ring ? 2 : 1);
      barrier_init(ring.is_empty(stage), kIs.groups * 4 * kIs.blocks);  // a warp, once each
    }
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
  } else {
    if constexpr (K::kMovesRegisters) registers_up<K::kUp>();
    multiply_tiles(of, ring, rank, group, thread % 128);
    if (thread == 0 && blockIdx.x == 0) *of.cycles = clock64() - begin;
  }
  // A block must be there while others of its cluster write to it or arrive at its barriers.
  if constexpr (kIs.blocks > 1) {
    __syncwarp();
    cluster_sync();
  }
}

}  // namespace octavo::cuda::ladder
