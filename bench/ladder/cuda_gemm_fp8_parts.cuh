// What the kernel of cuda_gemm_fp8.cu is made of: its versions, the ring of stages in shared
// memory, the order of tiles, scales of B, and sums of tiles that are cut.
#pragma once

#include "octavo/backend/cuda/gemm/stream_k_schedule.h"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda::ladder {

// How a thread comes by the scale of B, one number for a tile and a block of K.
enum class BroadcastScale {
  when_needed,  // every thread loads it from memory, for every block
  block_ahead,  // the same, one block before its use
  shuffled,     // each lane loads that of another block, up to 32 ahead; a shuffle gives it to all
  in_pipeline,  // a warp of its own brings it into the stage
  multiplied,   // two warps bring the scales of rows into the stage, times that of B
};

struct Version {
  int groups = 1;           // warpgroups that multiply, 64 rows of a tile at a time
  int row_passes = 1;       // ... so many times a stage
  int stages = 1;           // one: by the warpgroup that multiplies; more: another loads ahead
  bool persistent = false;  // as many blocks as run at one time; tiles in strips
  int blocks = 1;           // of a cluster: they have the same rows and neighbouring columns
  int cols = 128;           // of a tile; if more, blocks of a cluster share these, not their rows
  BroadcastScale broadcast_scale = BroadcastScale::when_needed;
  bool stream_k_units =
      false;  // the last waves of tiles are cut along K, so that all blocks end at once
  bool exchanged = false;  // sums lie where their neighbour's run would, in the other bank
  bool ready = false;      // scales are asked for before a stage's products, and not among them
  bool ahead = false;      // ... and the next stage is waited for and its scales loaded during them
  bool by_row = false;     // sums of one row are added, then those of the other
  bool together = false;   // results of all waves are laid out, then stored
  int copies = 1;          // of the loop over stages
};

// A product. Maps are for the copy engine: boxes are lines of 128 bytes, swizzled, as many of A as
// a block fetches, 128 of B and 64 of the result.
struct Product {
  CUtensorMap rows{}, cols{}, out{};
  const float* row_scales = nullptr;  // of A, a block of K after the other, row_pitch numbers each
  const float* col_scales = nullptr;  // of B, k_blocks numbers for every 128 columns
  int row_pitch = 0, row_count = 0, k_blocks = 0;
  StreamKSchedule schedule{};
  float4* partial = nullptr;            // sums that one cluster leaves for the next
  unsigned long long* ready = nullptr;  // ... and that they are there: `ticket`
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
  // Of columns that have one scale of B in any case, and how many of them a tile has.
  static constexpr int kBroadcastCols = kCols % 128 == 0 ? 128 : 64,
                       kBroadcastScales = kCols / kBroadcastCols;
  // In shared memory, from a multiple of 1024 on: stages; results; scales; barriers.
  static constexpr int kStagedAt = kIs.stages * kStageBytes,
                       kScalesAt = kStagedAt + kIs.groups * kIs.row_passes * kStagedBytes,
                       kBroadcastAt = kScalesAt + kIs.stages * kScaleBytes,
                       kFullAt = kBroadcastAt + kIs.stages * 16,
                       kEmptyAt = kFullAt + kIs.stages * 8,
                       kHandedOverAt = kEmptyAt + kIs.stages * 8,
                       kSharedBytes = kHandedOverAt + kIs.groups * 8 + 1024;
  // Registers of a block are 64 K, 128 for each of 512 threads: too few for those that multiply.
  static constexpr bool kUsesSetmaxnreg = kIs.groups == 3 || kIs.row_passes > 1 || kSums > 64;
  static constexpr int kConsumerRegisters = kIs.groups == 3 ? 152 : 224, kProducerRegisters = 56;
  // Where element s of a run is among the sums.
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
  // Where the threads of a warpgroup arrive once they have left sums for the next cluster.
  __device__ __forceinline__ SharedAddress handed_over_barrier(int group) const {
    return base + K::kHandedOverAt + group * 8;
  }
};

// A stage of the ring, and whether it is an even or an odd time round.
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

// The tiles of a block, one after the other. A grid of one block a tile has one each.
template <Version kIs>
struct Walk {
  int cluster, count, at = 0, row = 0, col = 0;
  GemmItem item{};

  __device__ __forceinline__ explicit Walk(const Product& of)
      : cluster(static_cast<int>(blockIdx.x) / kIs.blocks), count(of.schedule.items(cluster)) {}
  [[nodiscard]] __device__ __forceinline__ bool is_over() const { return at >= count; }
  __device__ __forceinline__ void next() { ++at; }
  __device__ __forceinline__ void find(const Product& of, int rank) {
    item = of.schedule.item(cluster, at);
    using K = Kernel<kIs>;
    row = (K::kMulticastsRows ? item.unit_row : item.unit_row * kIs.blocks + rank) * K::kRows;
    col = (K::kMulticastsRows ? item.unit_col * kIs.blocks + rank : item.unit_col) * K::kCols;
  }
  // Of columns from `first` of the tile on; of the last ones, where they are beyond the end.
  [[nodiscard]] __device__ __forceinline__ const float* col_scales(const Product& of,
                                                                   int first = 0) const {
    return of.col_scales + min((col + first) / 128, of.k_blocks - 1) * of.k_blocks + item.first;
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

// ---- tiles that are cut along K

// A warpgroup's place among the sums that are left, from cluster to cluster.
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

// That they are there: a thread that has nothing else to do waits for the stores.
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
