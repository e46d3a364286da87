// Who takes which keys: all blocks of keys of all heads stand in a row, and every thread block
// takes an equal share of it, whose ends may lie within a head. The share follows from the job and
// the number of thread blocks alone, so the order of sums does too.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/attention/decode/decode_plan.h"

namespace octavo::cuda {

// The keys that any row of a batch sees, from a multiple of a tile on.
struct DecodeSpan {
  int first = 0;                       // a multiple of kDecodeTileKeys
  int begin = 0, end = 0;              // of the union of all rows
  int every_begin = 0, every_end = 0;  // keys that every row sees
  bool differ = false;                 // do rows see different keys?
};

__device__ inline DecodeSpan decode_span(const AttentionJob& job, std::int64_t batch) {
  const std::int64_t rows =
      job.query_lengths != nullptr ? min(job.queries, job.query_lengths[batch]) : job.queries;
  DecodeSpan span;
  if (rows <= 0) return span;
  const AttentionJob::Keys low = job.keys_of(batch, 0), high = job.keys_of(batch, rows - 1);
  // Both ends grow with the row.
  const std::int64_t begin = low.begin, end = high.end;
  if (begin >= end) return span;
  span.begin = static_cast<int>(begin);
  span.end = static_cast<int>(end);
  span.first = span.begin / kDecodeTileKeys * kDecodeTileKeys;
  span.every_begin = static_cast<int>(min(high.begin, end));
  span.every_end = static_cast<int>(max(low.end, std::int64_t{0}));
  span.differ = low.begin != high.begin || low.end != high.end;
  return span;
}

// At least one: a head whose rows see nothing has results too.
template <int kKeys>
__device__ __forceinline__ int decode_blocks_of(const DecodeSpan& span) {
  const int keys = span.end - span.first;
  return keys > 0 ? (keys + kKeys - 1) / kKeys : 1;
}

// Made by all threads of a block; `shared` has kThreads numbers. There are fewer than 2^31 blocks
// of keys, which decode.cc checks.
template <int kKeys, int kThreads>
class DecodeShares {
 public:
  __device__ DecodeShares(const DecodePlan& plan, int* shared)
      : job_(plan.job),
        shared_(shared),
        heads_(static_cast<int>(plan.job.kv_heads) * plan.groups),
        batches_(static_cast<int>(plan.job.batches)) {
    alike_ = job_.key_lengths == nullptr && job_.query_lengths == nullptr;
    if (alike_) {
      of_batch_ = decode_blocks_of<kKeys>(decode_span(job_, 0));
      all_ = of_batch_ * heads_ * batches_;
    } else {
      add_up();
      all_ = shared_[kThreads - 1] * heads_;
    }
    each_block_ = all_ / plan.blocks;
    longer_ = all_ - each_block_ * plan.blocks;
  }

  // The share of a thread block begins here.
  [[nodiscard]] __device__ int begin_of(int block) const {
    return each_block_ * block + min(block, longer_);
  }
  // The thread block whose share has this block of keys.
  [[nodiscard]] __device__ int owner_of(int place) const {
    const int in_longer = longer_ * (each_block_ + 1);
    if (place < in_longer) return place / (each_block_ + 1);
    return longer_ + (place - in_longer) / max(each_block_, 1);
  }
  // Blocks of keys before the first head of a batch.
  [[nodiscard]] __device__ int before(int batch) const {
    if (alike_) return of_batch_ * heads_ * batch;
    const int thread = batch / each_;
    int sum = thread > 0 ? shared_[thread - 1] : 0;
    for (int b = thread * each_; b < batch; ++b) sum += blocks_in(b);
    return sum * heads_;
  }
  // The batch of a block of keys.
  [[nodiscard]] __device__ int batch_of(int place) const {
    if (alike_) return place / (of_batch_ * heads_);
    int low = 0, high = kThreads - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (shared_[middle] * heads_ > place)
        high = middle;
      else
        low = middle + 1;
    }
    int sum = low > 0 ? shared_[low - 1] : 0;
    for (int batch = low * each_;; ++batch) {
      sum += blocks_in(batch);
      if (sum * heads_ > place) return batch;
    }
  }

 private:
  [[nodiscard]] __device__ int blocks_in(int batch) const {
    return decode_blocks_of<kKeys>(decode_span(job_, batch));
  }
  // A thread counts some batches in a row; shared_ becomes the sums up to each thread's last one.
  __device__ void add_up() {
    each_ = (batches_ + kThreads - 1) / kThreads;
    const int thread = static_cast<int>(threadIdx.x), first = thread * each_;
    int sum = 0;
    for (int b = first; b < min(first + each_, batches_); ++b) sum += blocks_in(b);
    shared_[thread] = sum;
    __syncthreads();
#pragma unroll 1
    for (int step = 1; step < kThreads; step *= 2) {
      const int before = thread >= step ? shared_[thread - step] : 0;
      __syncthreads();
      shared_[thread] += before;
      __syncthreads();
    }
  }

  const AttentionJob& job_;
  int* shared_;
  int heads_, batches_, all_ = 0, of_batch_ = 0, each_ = 0, each_block_ = 0, longer_ = 0;
  bool alike_ = false;
};

// A thread block's way through its share: head by head, and in each the blocks of keys.
template <int kKeys>
struct DecodeWalk {
  std::int64_t batch = 0;
  int head = 0;               // of batch: (KV head, group)
  int block = 0, blocks = 0;  // of keys; blocks of the head
  DecodeSpan span{};

  __device__ __forceinline__ void start(const DecodePlan& plan, int first_batch, int within) {
    batch = first_batch;
    span = decode_span(plan.job, batch);
    blocks = decode_blocks_of<kKeys>(span);
    head = within / blocks;
    block = within % blocks;
  }
  // True where this begins another head.
  __device__ __forceinline__ bool next(const DecodePlan& plan) {
    if (++block < blocks) return false;
    next_head(plan);
    return true;
  }
  __device__ __forceinline__ void next_head(const DecodePlan& plan) {
    block = 0;
    if (++head < static_cast<int>(plan.job.kv_heads) * plan.groups) return;
    head = 0;
    if (++batch >= plan.job.batches) return;
    span = decode_span(plan.job, batch);
    blocks = decode_blocks_of<kKeys>(span);
  }
};

}  // namespace octavo::cuda
