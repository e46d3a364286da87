// What the forward kernels of attention get: tensor maps, the job, and how it is cut into work
// tiles. A kernel is a choice of what Q K^T and P V are multiplied in (ForwardForm), a head size it
// pads to, and whether keys have scales of their own.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/base/macros.h"

namespace octavo::cuda {

enum class ForwardForm : std::uint8_t {
  bf16,      // Q, K, V and P in bf16
  strict,    // Q and K in e4m3, V and P in bf16, which holds e4m3 exactly
  balanced,  // Q and K in int8, V and P in bf16
  fast,      // all in e4m3; scores are f16
};

// Keys of 16 neighbours in the order of wgmma fragments: place 4 q + 2 h + e holds key
// 8 h + 2 q + e, so that what a lane has of 16 columns of scores is what it needs as an operand.
OCTAVO_HD constexpr int fragment_key(int place) {
  return (place & ~15) | (place >> 1 & 1) << 3 | (place >> 2 & 3) << 1 | (place & 1);
}

// Scales in f32, by batch, head and row (or channel); steps are in elements, 0 where all share one.
struct ForwardScales {
  const float* first = nullptr;
  std::int64_t batch = 0, head = 0;
  int step = 0;

  [[nodiscard]] OCTAVO_HD const float* at(int b, int h) const {
    return first + b * batch + h * head;
  }
};

// Blocks that may share the rows of one range, whose number is not known to the host.
inline constexpr int kRangeParts = 8;

struct ForwardPlan {
  CUtensorMap q{}, k{}, v{};
  AttentionJob job{};                    // lengths are the device's
  ForwardScales q_scales{}, v_scales{};  // of rows and of channels; none of values
  ForwardScales k_scales{};              // one for a head, where key_scales is null
  // [batches, kv_heads, padded keys], in fragment order: f32, or f16 relative to key_scale_most of
  // the head. Null: one scale for all keys of a head.
  const void* key_scales = nullptr;
  const float* key_scale_most = nullptr;
  std::int64_t padded_keys = 0;
  // Work tiles: blocks of rows by heads by batches; or, of a job with ranges, kRangeParts of each.
  // Heads are taken `head_group` at a time, whose keys and values fit in L2.
  int row_blocks = 0, head_group = 1, work_count = 0, heads_per_kv = 1;
  // Where tiles are uneven, as under a causal mask, under which late rows have more keys: the
  // number of work tiles that have been taken, zero at first. Null: blocks take them in turn.
  int* taken = nullptr;
  // Rows that the general kernel does again, [batches, heads, queries] each. `doubts`, zeros at
  // first: at the first row of a tile, how many rows it has, where V has a number that is not
  // finite among keys that some of them see and others do not, because P V multiplies zeros by what
  // a row does not see. Null where all rows see the same keys. `row_doubts`: 1 for a row that bf16
  // weights are too coarse for. Null where P is coarser by definition.
  std::uint8_t *doubts = nullptr, *row_doubts = nullptr;
  bool stores_pairs = true;  // rows of the output are 8-byte aligned
  float score_unit = 0.0F;   // softmax_scale log2(e)
};

}  // namespace octavo::cuda
