// The decode kernel: a thread block's way through its share of the keys, head by head. Its warps
// take tiles in turn (decode_tile.cuh), and their sums are joined at the end of each head.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/backend/cuda/attention/decode/decode_tile.cuh"
#include "octavo/backend/cuda/hopper/pdl.cuh"

namespace octavo::cuda {

// Of two parts of a row's keys.
__device__ __forceinline__ DecodeState joined_states(const DecodeState& a, const DecodeState& b) {
  DecodeState both;
  both.top = fmaxf(a.top, b.top);
  both.unit = fmaxf(a.unit, b.unit);
  both.sum = a.sum * step_down(a.top, both.top) + b.sum * step_down(b.top, both.top);
  both.largest = fmaxf(a.largest, b.largest);
  both.poisoned = fmaxf(a.poisoned, b.poisoned);
  return both;
}

template <typename Element, int kDims, int kTiles, bool kTokenScales>
class DecodeBlock : DecodeTile<Element, kDims, kTiles, kTokenScales> {
  using Tile = DecodeTile<Element, kDims, kTiles, kTokenScales>;
  using Tile::clear_warp, Tile::job_, Tile::kOfPiece, Tile::kShift, Tile::lane_, Tile::largest_,
      Tile::memory_, Tile::plan_, Tile::poisoned_, Tile::sum_, Tile::sums_, Tile::top_, Tile::unit_,
      Tile::warp_;
  using typename Tile::Shape;
  static constexpr int kWarps = Shape::kWarps, kThreads = Shape::kThreads, kRows = Shape::kRows,
                       kStages = Shape::kStages, kKeysOfBlock = Shape::kKeysOfBlock;
  // mma.sync's sums round toward zero: after so many they are added to sums that do not.
  static constexpr int kMostSums = 128;

 public:
  __device__ __forceinline__ DecodeBlock(const DecodePlan& plan, std::byte* memory)
      : Tile(plan, memory), loader_(plan, shared_address(memory)) {}

  __device__ __forceinline__ void run() {
    pdl_launch_dependents();  // the kernel that joins waits for this one's end
    DecodeShares<kKeysOfBlock, kThreads> shares(plan_, memory_.scratch());
    const int block = static_cast<int>(blockIdx.x), first = shares.begin_of(block);
    int left = shares.begin_of(block + 1) - first;
    if (left == 0) return;
    const int batch = shares.batch_of(first);
    {
      DecodeWalk<kKeysOfBlock> walk;
      walk.start(plan_, batch, first - shares.before(batch));
      loader_.start(walk, left);
      if (threadIdx.x == 0) memory_.walk() = walk;
    }
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage) copy_to(stage);
    bool is_first = true;
#pragma unroll 1
    for (;;) {
      __syncthreads();  // the walk has been written
      const int here = min(left, memory_.walk().blocks - memory_.walk().block);
      const bool is_whole = memory_.walk().block == 0 && here == memory_.walk().blocks;
      start_head();
#pragma unroll 1
      for (int done = 0; done < here;) {
        const int next = min(done + kMostSums, here);
#pragma unroll 1
        for (; done < next; ++done) take_tile();
        join_warps();
      }
      if (is_whole)
        finish_head();
      else
        store_partial(is_first ? 0 : 1);
      left -= here;
      is_first = false;
      if (left == 0) return;
      __syncthreads();  // what has been written was read from the walk
      if (threadIdx.x == 0) memory_.walk().next_head(plan_);
    }
  }

 private:
  __device__ __forceinline__ void copy_to(int stage) {
    const bool good = loader_.copy_next(stage);
    bad_ = (bad_ & ~(1u << stage)) | (good ? 0u : 1u << stage);
  }

  // --- the rows of a head ---

  // Q into shared memory: f16 as multiples of a power of two of its row, or bf16.
  __device__ __forceinline__ void start_head() {
    key_ =
        memory_.walk().span.first + memory_.walk().block * kKeysOfBlock + warp_ * kDecodeTileKeys;
#pragma unroll 1
    for (int r = warp_; r < kRows; r += kWarps) load_query(r);
    for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kThreads)
      memory_.state(kWarps, r) = DecodeState{};
    for (int i = static_cast<int>(threadIdx.x); i < kRows * Shape::kSumPitch; i += kThreads)
      memory_.sums_of_row(0)[i] = 0.0F;
    __syncthreads();
    clear_warp();
  }

  // By a warp. Element d of row r lies where the lane reads it that has byte d of K's rows.
  __device__ __forceinline__ void load_query(int r) {
    const DecodeRow row = decode_row(plan_, memory_.walk().head, r);
    const std::int64_t kv_head = memory_.walk().head / plan_.groups;
    AttentionJob::Keys keys{};
    const bool is_padding = !row.exists || (job_.query_lengths != nullptr &&
                                            row.query >= job_.query_lengths[memory_.walk().batch]);
    if (!is_padding) keys = job_.keys_of(memory_.walk().batch, row.query);
    constexpr int kEach = kDims / 32;
    float numbers[kEach] = {};
    if (!is_padding) load_query_row(plan_, memory_.walk().batch, row, lane_, numbers);
    float most = 0.0F;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (isfinite(numbers[i])) most = fmaxf(most, fabsf(numbers[i]));
    int exponent = 0;
    if constexpr (Element::kF16) {
#pragma unroll
      for (int step = 1; step < 32; step *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
      if (most > 0.0F) exponent = static_cast<int>(__float_as_uint(most) >> 23) - 127 - 14;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int d = lane_ + 32 * i, chunk_size = 16 / Element::kBytes;
      const int across = d / chunk_size % 4, chunk = d / (4 * chunk_size),
                step = chunk * Element::kStepsOfChunk + d % chunk_size / 4;
      auto* const to = reinterpret_cast<std::uint16_t*>(
                           memory_.queries() + (step * kTiles + r / 8) * 32 + r % 8 * 4 + across) +
                       d % 4;
      if constexpr (Element::kF16)
        *to = __half_as_ushort(__float2half_rn(scaled_by(numbers[i], -exponent)));
      else
        *to = __bfloat16_as_ushort(__float2bfloat16_rn(numbers[i]));
    }
    if (lane_ != 0) return;
    typename DecodeMemory<Shape>::OfRow of{};
    if (!is_padding) {
      of.begin = static_cast<int>(max(keys.begin, std::int64_t{0}));
      of.end = static_cast<int>(max(keys.end, std::int64_t{0}));
      of.factor =
          static_cast<float>(query_scale(plan_, memory_.walk().batch, row) *
                             shared_scale(plan_.k, memory_.walk().batch, kv_head) *
                             job_.softmax_scale * 1.4426950408889634 * power_of_two(exponent));
    }
    memory_.of_row(r) = of;
  }

  __device__ __forceinline__ void take_tile() {
    wait_for_stage<kStages - 2>();
    __syncwarp();  // for all lanes, and none reads the stage before any longer
    const bool bad = (bad_ >> stage_ & 1u) != 0;
    copy_to(stage_ == 0 ? kStages - 1 : stage_ - 1);
    const int key = key_;
    key_ += kKeysOfBlock;
    if (key < memory_.walk().span.end) {
      if (bad)
        this->poison_tile(key);
      else
        this->multiply_tile({memory_.stage(stage_)}, key);
    }
    stage_ = stage_ == kStages - 1 ? 0 : stage_ + 1;
  }
  // --- the warps' sums ---

  // Column of element m of a lane's sums.
  [[nodiscard]] __device__ __forceinline__ int column(int m, int half) const {
    constexpr int kTilesOfPiece = kOfPiece / 2;
    return m / kTilesOfPiece * 8 * kOfPiece + lane_ / 4 * kOfPiece + m % kTilesOfPiece * 2 + half;
  }

  // Adds the sums of all warps, one after another, to those of the head, and clears them.
  __device__ __forceinline__ void join_warps() {
    const int across = lane_ % 4;
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum = sum_of_keys(sum_[rt][h]), most = most_of_keys(largest_[rt][h]);
        const bool poisoned =
            most_of_keys((poisoned_ >> (2 * rt + h) & 1u) != 0 ? 1.0F : 0.0F) != 0.0F;
        if (lane_ < 4)
          memory_.state(warp_, 8 * rt + 2 * across + h) = {
              .top = top_[rt][h],
              .unit = kTokenScales ? unit_[rt][h] : top_[rt][h],
              .sum = sum,
              .largest = most,
              .poisoned = poisoned ? 1.0F : 0.0F};
      }
    __syncthreads();
    float mine[kTiles][2], before[kTiles][2];
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 8 * rt + 2 * across + h;
        const float old = memory_.state(kWarps, row).unit;
        float unit = old;
        for (int w = 0; w < kWarps; ++w) unit = fmaxf(unit, memory_.state(w, row).unit);
        mine[rt][h] = step_down(kTokenScales ? unit_[rt][h] : top_[rt][h], unit);
        before[rt][h] = step_down(old, unit);
      }
      // In every round each warp adds to other columns.
#pragma unroll 1
    for (int round = 0; round < kWarps; ++round) {
#pragma unroll
      for (int m = 0; m < Shape::kOutTiles; ++m)
        if (m % kWarps == (warp_ + round) % kWarps) add_to_head(m, round == 0, mine, before);
      __syncthreads();
    }
    for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kThreads) {
      DecodeState all = memory_.state(kWarps, r);
#pragma unroll 1
      for (int w = 0; w < kWarps; ++w) all = joined_states(all, memory_.state(w, r));
      memory_.state(kWarps, r) = all;
    }
    clear_warp();
    __syncthreads();
  }
  __device__ __forceinline__ void add_to_head(int m, bool is_first, const float (&mine)[kTiles][2],
                                              const float (&before)[kTiles][2]) {
    float* to[kTiles][2];
    float2 old[kTiles][2];
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        to[rt][h] = memory_.sums_of_row(8 * rt + 2 * (lane_ % 4) + h) + column(m, 0);
        old[rt][h] = *reinterpret_cast<const float2*>(to[rt][h]);
      }
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float shrinks = is_first ? before[rt][h] : 1.0F;
        *reinterpret_cast<float2*>(to[rt][h]) = {
            old[rt][h].x * shrinks + sums_[m][rt][h] * mine[rt][h],
            old[rt][h].y * shrinks + sums_[m][rt][h + 2] * mine[rt][h]};
      }
  }

  __device__ __forceinline__ void finish_head() {
#pragma unroll 1
    for (int r = warp_; r < kRows; r += kWarps) {
      const DecodeRow row = decode_row(plan_, memory_.walk().head, r);
      if (!row.exists) continue;
      DecodeState all = memory_.state(kWarps, r);
      all.sum *= exp2f(-kShift);
      all.unit -= kShift;
      const int kv_head = memory_.walk().head / plan_.groups;
      const DecodeFinish finish =
          finish_decode_row(plan_, memory_.walk().batch, kv_head, row, all, lane_);
#pragma unroll 1
      for (int e = lane_; e < static_cast<int>(job_.out.first.cols()); e += 32)
        store_decode_sum(plan_, memory_.walk().batch, kv_head, row, e, memory_.sums_of_row(r)[e],
                         finish);
    }
  }

  __device__ __forceinline__ void store_partial(int which) {
    float* const to =
        plan_.partials + (static_cast<std::int64_t>(blockIdx.x) * kDecodePartialsOfBlock + which) *
                             decode_partial_floats(kRows, kDims);
    for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kThreads) {
      DecodeState all = memory_.state(kWarps, r);
      all.sum *= exp2f(-kShift);
      all.unit -= kShift;
      *reinterpret_cast<DecodeState*>(to + r * kDecodeStateFloats) = all;
    }
    float* const sums = to + kRows * kDecodeStateFloats;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kDims; i += kThreads)
      sums[i] = memory_.sums_of_row(i / kDims)[i % kDims];
  }

  DecodeLoader<Shape, kTokenScales> loader_;
  int stage_ = 0, key_ = 0;
  std::uint32_t bad_ = 0;
};

template <typename Element, int kDims, int kTiles, bool kTokenScales>
__global__ void __launch_bounds__(
    (DecodeShape<Element, kDims, kTiles, kTokenScales>::kThreads),
    (DecodeShape<Element, kDims, kTiles, kTokenScales>::kBlocksOfMultiprocessor))
    attention_decode_kernel(const __grid_constant__ DecodePlan plan) {
  extern __shared__ __align__(128) std::byte decode_memory[];
  DecodeBlock<Element, kDims, kTiles, kTokenScales>(plan, decode_memory).run();
}

}  // namespace octavo::cuda
