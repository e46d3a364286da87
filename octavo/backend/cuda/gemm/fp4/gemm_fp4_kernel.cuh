// GEMM of bf16 activations by FP4 weights, MX or NVFP4, on Hopper: wgmma with A in registers.
// Weights stay in four bits in global memory and in the shared-memory pipeline. A consumer
// warpgroup decodes its 64 rows of weights to bf16 in its own registers, from which wgmma takes
// operand A; it decodes one line (64 of K) while the tensor cores multiply the line before.
//
// A thread holds two neighbours of K at a time, the same two of every eight: one byte of each
// 32-bit word of codes. It reads all bytes of its two rows, as do the three threads beside it, and
// extracts its own byte.
#pragma once

#include <cstdint>
#include <type_traits>

#include "octavo/backend/cuda/gemm/fp4/gemm_fp4_pipeline.cuh"
#include "octavo/backend/cuda/gemm/fp4_decode.cuh"
#include "octavo/backend/cuda/gemm/gemm_epilogue.cuh"
#include "octavo/backend/cuda/gemm/stream_k_partial.cuh"
#include "octavo/backend/cuda/hopper/cluster.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/pdl.cuh"
#include "octavo/backend/cuda/hopper/setmaxnreg.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"

namespace octavo::cuda {

__device__ __forceinline__ uint4 load_shared_words(SharedAddress from) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(from));
  return words;
}

// Block scales of two rows, as a thread needs them line by line. Of four lines, each of four
// threads loads one long before its use; the others get it by shuffle.
template <bool kNvfp4>
class LineScales {
 public:
  // Starts at this line. Rows beyond the end read the scales of the last row.
  __device__ __forceinline__ void begin(const Fp4Plan& plan, int row, int line, int lane) {
    const int last = plan.gemm.row_count - 1;
    from_[0] = plan.scales + min(row, last) * plan.scale_pitch;
    from_[1] = plan.scales + min(row + 8, last) * plan.scale_pitch;
    four_ = line / 4 - 1;
    load(plan, lane);
  }
  // Must be called for every line in ascending order.
  __device__ __forceinline__ void reach(const Fp4Plan& plan, int line, int lane) {
    if (line / 4 == four_) return;
    ++four_;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        now_[r][w] = block_scale_bits<kNvfp4>(next_[r] >> (16 * w) & 0xFFu) |
                     block_scale_bits<kNvfp4>(next_[r] >> (16 * w + 8) & 0xFFu) << 16;
    load(plan, lane);
  }
  // The scales of row r for the four k16 steps of a line.
  __device__ __forceinline__ void of(int r, int line, int lane, __nv_bfloat162 (&to)[4]) const {
    const int source = (lane & ~3) | (line & 3);
    unsigned bits[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) bits[w] = __shfl_sync(0xFFFFFFFFu, now_[r][w], source);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int at = kNvfp4 ? s : s / 2;
      const unsigned both = __byte_perm(bits[at / 2], 0, at % 2 == 0 ? 0x1010 : 0x3232);
      to[s] = *reinterpret_cast<const __nv_bfloat162*>(&both);
    }
  }

 private:
  static constexpr int kOfLine = kNvfp4 ? 4 : 2, kWords = kOfLine / 2;
  using Bytes = std::conditional_t<kNvfp4, unsigned, unsigned short>;  // scales of one line

  // Loads the next four lines.
  __device__ __forceinline__ void load(const Fp4Plan& plan, int lane) {
    const int line = (four_ + 1) * 4 + lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      next_[r] = line < plan.lines ? __ldg(reinterpret_cast<const Bytes*>(from_[r]) + line) : 0;
  }

  const unsigned char* from_[2];
  int four_;  // index of the four lines in now_
  unsigned now_[2][kWords], next_[2];
};

template <typename Kernel>
struct Fp4Mainloop {
  static constexpr int kSums = Kernel::kSums;
  static constexpr int kSteps = kFp4Line / 16;
  using Rows = std::uint32_t[kSteps][4];
  using Scales = LineScales<Kernel::kNvfp4>;
  const Fp4Plan& plan;
  const GemmPipeline<Kernel>& pipeline;
  int lane;
  SharedAddress codes;  // byte offset in a stage of the thread's first row
  unsigned byte;        // selector of __byte_perm for the thread's byte

  // A line of a pipeline stage, and its index along K.
  struct Place {
    PipelineState<Kernel> pipeline{};
    int within = 0, line = 0;
    __device__ __forceinline__ void next() {
      ++line;
      if (++within < Kernel::kLines) return;
      within = 0;
      pipeline.next();
    }
  };

  __device__ __forceinline__ Fp4Mainloop(const Fp4Plan& plan_is,
                                         const GemmPipeline<Kernel>& pipeline_is, int group,
                                         int thread)
      : plan(plan_is), pipeline(pipeline_is), lane(thread % 32) {
    const int row = group * kMmaRows + thread / 32 * 16 + lane / 4, t = lane % 4;
    // Swizzle: 16-byte chunks are permuted by the index of the 128-byte line that they are in.
    const int swizzle = row * Kernel::kCodeBytes / 128 % (Kernel::kCodeBytes / 16);
    codes = row * Kernel::kCodeBytes + swizzle * 16;
    byte = t | t << 4 | (4 + t) << 8 | (4 + t) << 12;
  }

  // Decodes the thread's byte of a word. __byte_perm places the byte as it is and shifted left by
  // four bits, so that one code is at the top of each 16-bit half.
  __device__ __forceinline__ unsigned decoded(unsigned word, __nv_bfloat162 scale) const {
    const unsigned tops = __byte_perm(word << 4, word, byte);
    return scaled_e2m1((tops & 0x80008000u) | (tops >> 6 & 0x01C001C0u), scale);
  }

  __device__ __forceinline__ void decode(const Place& at, Scales& scales, Rows& rows) const {
    scales.reach(plan, at.line, lane);
    const SharedAddress from = (pipeline.rows(at.pipeline.stage) + codes) ^ (at.within * 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      __nv_bfloat162 scale[kSteps];
      scales.of(r, at.line, lane, scale);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 words = load_shared_words((from + r * 8 * Kernel::kCodeBytes) ^ (half * 16));
        rows[2 * half][r] = decoded(words.x, scale[2 * half]);
        rows[2 * half][2 + r] = decoded(words.y, scale[2 * half]);
        rows[2 * half + 1][r] = decoded(words.z, scale[2 * half + 1]);
        rows[2 * half + 1][2 + r] = decoded(words.w, scale[2 * half + 1]);
      }
    }
  }

  __device__ __forceinline__ void begin(const Place& at, const Rows& rows, bool more,
                                        float (&sums)[kSums]) const {
    const unsigned cols =
        smem_descriptor_low(pipeline.cols(at.pipeline.stage) + at.within * Kernel::kColLine);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      wgmma_rs(sums, rows[step], smem_descriptor_from_low(cols + step * kDescriptorStep),
               more || step > 0);
    wgmma_commit();
  }

  // Issues wgmma for a decoded line, then decodes the next line. Returns whether there was a next
  // line.
  __device__ __forceinline__ bool multiply_line(Place& at, int& left, int& used, bool more,
                                                Scales& scales, const Rows& rows, Rows& next,
                                                float (&sums)[kSums]) const {
    begin(at, rows, more, sums);
    const int stage = at.pipeline.stage;
    at.next();
    wgmma_wait<1>();  // the line before is done: its stage may be released, its registers rewritten
    if (used >= 0) consumer_release(pipeline, used, lane);
    used = at.within == 0 ? stage : -1;
    if (--left == 0) return false;
    if (at.within == 0) mbarrier_wait(pipeline.full_barrier(at.pipeline.stage), at.pipeline.phase);
    decode(at, scales, next);
    return true;
  }

  // The main loop: `left` lines, at least one. The stage of the first line is full.
  __device__ __forceinline__ void multiply_lines(PipelineState<Kernel>& from, int line, int left,
                                                 bool more, Scales& scales,
                                                 float (&sums)[kSums]) const {
    Place at{from, 0, line};
    Rows even, odd;
    int used = -1;
    wgmma_fence_operand(sums);
    decode(at, scales, even);
    while (true) {
      if (!multiply_line(at, left, used, more, scales, even, odd, sums)) break;
      more = true;
      if (!multiply_line(at, left, used, more, scales, odd, even, sums)) break;
    }
    wgmma_wait<0>();
    wgmma_fence_operand(sums);
    if (at.within > 0) {  // K ends within a stage
      used = at.pipeline.stage;
      at.pipeline.next();
    }
    consumer_release(pipeline, used, lane);
    from = at.pipeline;
  }
};

// Adds the partial sums of all earlier parts of the tile; the last part holds its own.
template <typename Kernel>
__device__ __forceinline__ void add_parts(const Fp4Plan& plan, int slot, int thread, int barrier,
                                          float (&sums)[Kernel::kSums]) {
  constexpr int kSlots = Kernel::kClusterSize * Kernel::kGroups;
  for (int part = 1; part < plan.parts; ++part)
    wait_partial_sums(plan.gemm, slot - part * kSlots, thread, barrier);
#pragma unroll 1
  for (int part = 1; part < plan.parts; ++part)
    load_partial_sums<true>(plan.gemm, slot - part * kSlots, thread, sums);
}

template <typename Kernel>
__device__ __forceinline__ void fp4_consumer_warpgroup(const Fp4Plan& plan,
                                                       const GemmPipeline<Kernel>& pipeline,
                                                       const TileScheduler& scheduler, int rank,
                                                       int group, EpilogueTile epilogue) {
  constexpr int kSums = Kernel::kSums;
  const GemmPlan& gemm = plan.gemm;
  const int thread = epilogue.thread, lane = thread % 32, cluster = scheduler.cluster;
  const int slot = (cluster * Kernel::kClusterSize + rank) * Kernel::kGroups + group;
  const int tile_row = rank * Kernel::kRows + group * kMmaRows,
            thread_row = tile_row + thread / 32 * 16 + lane / 4;
  const Fp4Mainloop<Kernel> mainloop(plan, pipeline, group, thread);
  // Scales of the first work tile are loaded before the first stage is full.
  LineScales<Kernel::kNvfp4> scales;
  scales.begin(plan, scheduler.work_tile.unit_row * Kernel::kUnitRows + thread_row,
               scheduler.work_tile.first * Kernel::kLines, lane);
  bool is_first = true;
  const float scale =
      plan.tensor_scale != nullptr ? *plan.x_scale * *plan.tensor_scale : *plan.x_scale;
  float sums[kSums];  // the first wgmma overwrites them
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = 0.0F;
  PipelineState<Kernel> at;
  while (true) {
    mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
    const TileInfo tile = pipeline.tile_infos[at.stage];
    int left = tile.blocks();
    if (left == 0) break;
    const bool continues = (tile.rest & TileInfo::kContinues) != 0,
               is_partial = (tile.rest & TileInfo::kIsPartial) != 0;
    epilogue.row = tile.row + tile_row;
    epilogue.col = tile.col;
    const int line = first_block(plan, cluster, tile) * Kernel::kLines;
    if (!is_first) scales.begin(plan, tile.row + thread_row, line, lane);
    is_first = false;
    if (epilogue.row >= gemm.row_count) {
#pragma unroll 1
      for (; left > 0; --left, at.next()) {  // all rows are beyond the edge
        mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
        consumer_release(pipeline, at.stage, lane);
      }
      if (is_partial) mbarrier_arrive(pipeline.handed_over_barrier(group));
      continue;
    }
    const bool more = continues && plan.parts == 1;
    if (more)
      continue_partial_sums(gemm, slot - Kernel::kClusterSize * Kernel::kGroups, thread, 1 + group,
                            sums);
    mainloop.multiply_lines(at, line, min(left * Kernel::kLines, plan.lines - line), more, scales,
                            sums);
    if (is_partial) {
      store_partial_sums(gemm, slot, thread, sums);
      mbarrier_arrive(pipeline.handed_over_barrier(group));
      continue;
    }
    if (plan.parts > 1) add_parts<Kernel>(plan, slot, thread, 1 + group, sums);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] *= scale;
    if (gemm.uses_tma_store)
      tma_store_tile<1>(gemm, epilogue, 1 + group, sums);
    else
      store_elements(gemm, epilogue, 1 + group, sums);
  }
  if (gemm.uses_tma_store && thread == 0) tma_store_wait();
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    gemm_fp4_kernel(const __grid_constant__ Fp4Plan plan) {
  extern __shared__ unsigned char memory[];
  const SharedAddress start = shared_address(memory), aligned = (start + 1023) & ~1023u;
  unsigned char* const base = memory + (aligned - start);
  constexpr int kTiles = Kernel::kStages * Kernel::kStageBytes,
                kTileInfos = kTiles + Kernel::kStaged;
  GemmPipeline<Kernel> pipeline{};
  pipeline.tiles = aligned;
  pipeline.tile_infos = reinterpret_cast<TileInfo*>(base + kTileInfos);
  pipeline.full = aligned + kTileInfos + Kernel::kStages * static_cast<int>(sizeof(TileInfo));
  pipeline.empty = pipeline.full + 8 * Kernel::kStages;
  pipeline.handed_over = pipeline.empty + 8 * Kernel::kStages;

  const int thread = static_cast<int>(threadIdx.x), rank = static_cast<int>(rank_in_cluster());
  const int cluster = static_cast<int>(blockIdx.x) / Kernel::kClusterSize;
  if (thread == 0) init_pipeline(pipeline, 1);
  const int group = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);
  if (thread == Kernel::kGroups * 128) {
    prefetch_tensor_map(plan.gemm.rows_tensor_map);
    prefetch_tensor_map(plan.gemm.cols_tensor_map);
  }
  const TileScheduler scheduler = scheduler_of(plan, cluster);
  cluster_sync();

  pdl_wait();
  if (group == Kernel::kGroups) {
    setmaxnreg_dec<Kernel::kProducerRegisters>();
    fp4_producer_warpgroup(plan, pipeline, scheduler, rank, thread % 128);
    pdl_launch_dependents();
  } else {
    setmaxnreg_inc<Kernel::kConsumerRegisters>();
    EpilogueTile epilogue;
    epilogue.row_end = plan.gemm.row_count;
    epilogue.col_end = plan.gemm.col_count;
    epilogue.thread = thread % 128;
    epilogue.staged = aligned + kTiles + group * (Kernel::kStaged / Kernel::kGroups);
    fp4_consumer_warpgroup(plan, pipeline, scheduler, rank, group, epilogue);
  }
  // A block must not exit while its cluster peer multicasts to it or arrives at its mbarriers.
  cluster_sync();
}

}  // namespace octavo::cuda
