// Parts of the kernel of cuda_gemm_fp8.cu: its versions, the pipeline in shared memory, the order
// of tiles, broadcast scales of B, and stream-K partial sums.
#pragma once

#include <cuda.h>

#include "octavo/backend/cuda/gemm/stream_k_schedule.h"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda::ladder {

// How a thread gets the broadcast scale of B, one number per tile and K block.
enum class BroadcastScale {
  when_needed,  // every thread loads it from global memory, for every block
  block_ahead,  // the same, one block before its use
  shuffled,     // each lane loads that of another block, up to 32 ahead; broadcast by shuffle
  in_pipeline,  // a producer warp stores it in the stage
  multiplied,   // two producer warps store the scales of rows times that of B in the stage
};

struct Version {
  int groups = 1;           // consumer warpgroups, 64 rows of a tile at a time
  int row_passes = 1;       // ... this many times per stage
  int stages = 1;           // one: loaded by the consumer warpgroup; more: by a producer warpgroup
  bool persistent = false;  // a persistent grid; rasterized tiles
  int blocks = 1;           // cluster size: blocks have the same rows and neighbouring columns
  int cols = 128;           // of a tile; if more, blocks of a cluster share these, not their rows
  BroadcastScale broadcast_scale = BroadcastScale::when_needed;
  bool stream_k =
      false;  // the last waves of tiles are split along K, so that all blocks end at once
  bool exchanged = false;  // sums are where their neighbour's run would be, in the other bank
  bool ready = false;      // scales are loaded before a stage's wgmmas, and not among them
  bool ahead = false;      // ... and the next stage is waited for and its scales loaded during them
  bool by_row = false;     // sums of one row are promoted, then those of the other
  bool together = false;   // results of all row passes are staged, then stored
  int copies = 1;          // unrolling of the loop over stages
};

// A GEMM. Tensor maps have boxes of 128-byte lines, 128B swizzle: as many lines of A as a block
// loads, 128 of B and 64 of the result.
struct Product {
  CUtensorMap rows{}, cols{}, out{};
  const float* row_scales = nullptr;  // of A, one K block after the other, row_pitch numbers each
  const float* col_scales = nullptr;  // of B, k_blocks numbers for every 128 columns
  int row_pitch = 0, row_count = 0, k_blocks = 0;
  StreamKSchedule schedule{};
  float4* partial = nullptr;            // stream-K: partial sums for the next cluster
  unsigned long long* ready = nullptr;  // ... and their flags: `ticket` once stored
  unsigned long long ticket = 0;
  long long* spent = nullptr;  // by the first block: cycles and nanoseconds
};

template <Version kIs>
struct Kernel {
  static constexpr Version kVersion = kIs;
  static constexpr bool kLoadsAhead = kIs.stages > 1;
  static constexpr int kScaleWarps = kIs.broadcast_scale == BroadcastScale::multiplied    ? 2
                                     : kIs.broadcast_scale == BroadcastScale::in_pipeline ? 1
                                                                                          : 0;
  static constexpr int kRows = kIs.groups * kIs.row_passes * kMmaRows, kCols = kIs.cols,
                       kSums = kCols / 2;
  static constexpr int kThreads = (kIs.groups + (kLoadsAhead ? 1 : 0)) * 128;
  static constexpr int kRowTile = kRows * kRowBytes, kStageBytes = kRowTile + kCols * kRowBytes;
  static constexpr int kScaleBytes = kRows * 4, kStagedBytes = kMmaRows * kCols * 2;
  static constexpr bool kMulticastsRows = kCols == 128;
  // Columns that always share one scale of B, and how many such groups a tile has.
  static constexpr int kBroadcastCols = kCols % 128 == 0 ? 128 : 64,
                       kBroadcastScales = kCols / kBroadcastCols;
  // Shared memory, from a multiple of 1024 on: stages; staged results; scales; mbarriers.
  static constexpr int kStagedAt = kIs.stages * kStageBytes,
                       kScalesAt = kStagedAt + kIs.groups * kIs.row_passes * kStagedBytes,
                       kBroadcastAt = kScalesAt + kIs.stages * kScaleBytes,
                       kFullAt = kBroadcastAt + kIs.stages * 16,
                       kEmptyAt = kFullAt + kIs.stages * 8,
                       kHandedOverAt = kEmptyAt + kIs.stages * 8,
                       kSharedBytes = kHandedOverAt + kIs.groups * 8 + 1024;
  // setmaxnreg: a block has 64 K registers, 128 for each of 512 threads: too few for consumers.
  static constexpr bool kUsesSetmaxnreg = kIs.groups == 3 || kIs.row_passes > 1 || kSums > 64;
  static constexpr int kConsumerRegisters = kIs.groups == 3 ? 152 : 224, kProducerRegisters = 56;
  // Index among the sums of element s of a run.
  static constexpr int place(int s) { return kIs.exchanged ? s ^ 1 : s; }
};

template <Version kIs>
struct Pipeline {
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
  __device__ __forceinline__ SharedAddress broadcast_scale(int stage) const {
    return base + K::kBroadcastAt + stage * 16;
  }
  __device__ __forceinline__ SharedAddress full_barrier(int stage) const {
    return base + K::kFullAt + stage * 8;
  }
  __device__ __forceinline__ SharedAddress empty_barrier(int stage) const {
    return base + K::kEmptyAt + stage * 8;
  }
  // Where the threads of a warpgroup arrive after they have stored partial sums for the next
  // cluster.
  __device__ __forceinline__ SharedAddress handed_over_barrier(int group) const {
    return base + K::kHandedOverAt + group * 8;
  }
};

// Pipeline state: the stage, and the phase parity of its mbarriers.
template <Version kIs>
struct PipelineState {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kIs.stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The tiles of a block, one after the other. In a non-persistent grid a block has one.
template <Version kIs>
struct Walk {
  int cluster, count, at = 0, row = 0, col = 0;
  WorkTile work_tile{};

  __device__ __forceinline__ explicit Walk(const Product& of)
      : cluster(static_cast<int>(blockIdx.x) / kIs.blocks),
        count(of.schedule.work_tiles(cluster)) {}
  [[nodiscard]] __device__ __forceinline__ bool is_over() const { return at >= count; }
  __device__ __forceinline__ void next() { ++at; }
  __device__ __forceinline__ void find(const Product& of, int rank) {
    work_tile = of.schedule.work_tile(cluster, at);
    using K = Kernel<kIs>;
    row = (K::kMulticastsRows ? work_tile.unit_row : work_tile.unit_row * kIs.blocks + rank) *
          K::kRows;
    col = (K::kMulticastsRows ? work_tile.unit_col * kIs.blocks + rank : work_tile.unit_col) *
          K::kCols;
  }
  // From column `first` of the tile on; clamped to the last ones beyond the end.
  [[nodiscard]] __device__ __forceinline__ const float* col_scales(const Product& of,
                                                                   int first = 0) const {
    return of.col_scales + min((col + first) / 128, of.k_blocks - 1) * of.k_blocks +
           work_tile.first;
  }
};

template <BroadcastScale kBroadcastScale>
struct BroadcastScales {  // when_needed
  const float* from;
  __device__ __forceinline__ BroadcastScales(const float* first, int, int) : from(first) {}
  __device__ __forceinline__ float take() { return __ldg(from++); }
};
template <>
struct BroadcastScales<BroadcastScale::block_ahead> {
  const float* from;
  int left;
  float next;
  __device__ __forceinline__ BroadcastScales(const float* first, int count, int)
      : from(first), left(count), next(__ldg(first)) {}
  __device__ __forceinline__ float take() {
    const float taken = next;
    ++from;
    if (--left > 0) next = __ldg(from);
    return taken;
  }
};
template <>
struct BroadcastScales<BroadcastScale::shuffled> {
  const float* from;
  int left, used = 0;
  float now = 0.0F, next = 0.0F;
  __device__ __forceinline__ BroadcastScales(const float* first, int count, int lane)
      : from(first + lane), left(count - lane) {
    load();
    advance();
  }
  __device__ __forceinline__ float take() {
    const float taken = __shfl_sync(0xFFFFFFFFu, now, used);
    if (++used == 32) advance();
    return taken;
  }
  __device__ __forceinline__ void load() {
    if (left > 0) next = __ldg(from);
  }
  __device__ __forceinline__ void advance() {
    now = next;
    used = 0;
    from += 32;
    left -= 32;
    load();
  }
};
template <>
struct BroadcastScales<BroadcastScale::in_pipeline> {
  __device__ __forceinline__ BroadcastScales(const float*, int, int) {}
};
template <>
struct BroadcastScales<BroadcastScale::multiplied> : BroadcastScales<BroadcastScale::in_pipeline> {
  using BroadcastScales<BroadcastScale::in_pipeline>::BroadcastScales;
};

// ---- stream-K partial sums

// The slot of a warpgroup's partial sums, ordered by cluster.
template <Version kIs>
__device__ __forceinline__ int slot_of(int cluster, int rank, int group) {
  return (cluster * kIs.blocks + rank) * kIs.groups + group;
}

template <int kSums>
__device__ __forceinline__ void store_partial_sums(const Product& of, int slot, int thread,
                                                   const float (&sums)[kSums]) {
  float4* const to = of.partial + slot * kSums / 4 * 128 + thread;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i)
    __stcg(to + i * 128,
           make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
}

// Sets their flag. Done by an idle producer thread, since the fence waits for the stores.
__device__ __forceinline__ void signal_partial_sums(const Product& of, int slot,
                                                    SharedAddress left) {
  mbarrier_wait(left, 0);
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(of.ready + slot), "l"(of.ticket)
               : "memory");
}

template <int kSums>
__device__ __forceinline__ void load_partial_sums(const Product& of, int slot, int thread,
                                                  int barrier, float (&sums)[kSums]) {
  if (thread == 0) {
    unsigned long long seen;
    do {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                   : "=l"(seen)
                   : "l"(of.ready + slot)
                   : "memory");
    } while (seen != of.ticket);
  }
  named_barrier_sync(barrier, 128);
  const float4* const from = of.partial + slot * kSums / 4 * 128 + thread;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    const float4 four = __ldcg(from + i * 128);
    sums[4 * i] = four.x;
    sums[4 * i + 1] = four.y;
    sums[4 * i + 2] = four.z;
    sums[4 * i + 3] = four.w;
  }
}

}  // namespace octavo::cuda::ladder
