// Work of a persistent block: which tiles of rows it takes, in which order, and the keys that their
// rows see.
#pragma once

#include "octavo/backend/cuda/attention/forward/forward_plan.h"

namespace octavo::cuda {

// Rows [first, end) of a head.
struct ForwardWork {
  int batch = 0, head = 0, first = 0, end = 0;
};

// What a block works on, in its order; one thread asks. Where tiles are even, blocks take them in
// turn; else a block takes the first that no other has taken.
template <typename Kernel>
class WorkWalk {
 public:
  // False: no more.
  __device__ __forceinline__ bool next(const ForwardPlan& plan, ForwardWork& work) {
    if (plan.job.ranges != nullptr) return next_of_range(plan, work);
    const int index = take(plan);
    if (index >= plan.work_count) return false;
    work = tile_at(plan, index);
    return true;
  }

 private:
  __device__ __forceinline__ int take(const ForwardPlan& plan) {
    const int index = plan.taken != nullptr ? atomicAdd(plan.taken, 1) : next_;
    next_ += static_cast<int>(gridDim.x);
    return index;
  }
  // Where tiles are even, blocks of rows of a head follow each other, because they read the same
  // keys; else long tiles come first, of all heads of a group.
  static __device__ __forceinline__ ForwardWork tile_at(const ForwardPlan& plan, int index) {
    const int heads = static_cast<int>(plan.job.heads);
    const int of_group = plan.head_group * plan.row_blocks, group = index / of_group;
    const int rest = index - group * of_group;
    // The last group of all has fewer heads.
    const int all = heads * static_cast<int>(plan.job.batches),
              size = min(plan.head_group, all - group * plan.head_group);
    const bool is_uneven = plan.taken != nullptr;
    const int block = is_uneven ? plan.row_blocks - 1 - rest / size : rest % plan.row_blocks,
              head = group * plan.head_group + (is_uneven ? rest % size : rest / plan.row_blocks);
    const int first = block * Kernel::kRows;
    return {.batch = head / heads,
            .head = head % heads,
            .first = first,
            .end = min(first + Kernel::kRows, static_cast<int>(plan.job.queries))};
  }
  __device__ __forceinline__ bool next_of_range(const ForwardPlan& plan, ForwardWork& work) {
    while (range_.first >= range_.end) {
      const int index = take(plan);
      if (index >= plan.work_count) return false;
      const AttentionRange rows = plan.job.ranges[index / kRangeParts];
      const int first = static_cast<int>(rows.first);
      range_ = {.batch = static_cast<int>(rows.batch),
                .head = static_cast<int>(rows.head),
                .first = first + index % kRangeParts * Kernel::kRows,
                .end = first + static_cast<int>(rows.count)};
    }
    work = range_;
    work.end = min(work.end, work.first + Kernel::kRows);
    range_.first += kRangeParts * Kernel::kRows;
    return true;
  }

  int next_ = static_cast<int>(blockIdx.x);
  ForwardWork range_;
};

// Tiles of keys [first, last) of a tile of rows; all rows see all keys of [full_begin, full_end).
struct KeyTiles {
  int first = 0, last = 0, full_begin = 0, full_end = 0;
  [[nodiscard]] __device__ __forceinline__ bool is_partial(int tile, int keys) const {
    return tile * keys < full_begin || (tile + 1) * keys > full_end;
  }
};

template <typename Kernel>
__device__ __forceinline__ KeyTiles key_tiles(const AttentionJob& job, const ForwardWork& work) {
  const std::int64_t rows =
      job.query_lengths != nullptr ? job.query_lengths[work.batch] : job.queries;
  const std::int64_t last = min(static_cast<std::int64_t>(work.end), rows) - 1;
  if (work.first > last) return {};
  const AttentionJob::Keys low = job.keys_of(work.batch, work.first),
                           high = job.keys_of(work.batch, last);
  const int begin = static_cast<int>(low.begin), end = static_cast<int>(high.end);
  if (begin >= end) return {};
  return {.first = begin / Kernel::kKeys,
          .last = (end + Kernel::kKeys - 1) / Kernel::kKeys,
          .full_begin = static_cast<int>(high.begin),
          .full_end = static_cast<int>(low.end)};
}

}  // namespace octavo::cuda
