// What a lane of a consumer warpgroup keeps of its two rows, row 16 warp + lane / 4 and the one 8
// further: which keys they see, their running maximum, and what becomes of it at the end.
#pragma once

#include <cmath>

#include "octavo/backend/attention_sink.h"
#include "octavo/backend/cuda/attention/forward/forward_schedule.cuh"
#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}
// Over the four lanes of a row.
__device__ __forceinline__ float most_of_quad(float x) {
  x = max_or_nan(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return max_or_nan(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ float sum_of_quad(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

// The scale of a row of codes that have one for each row, or for several of them.
__device__ __forceinline__ float scale_of_row(const QuantizedMatrix& matrix, std::int64_t row) {
  const auto scale = static_cast<float>(
      load_value(matrix.scales, row / tile_extent(matrix.tile.rows, matrix.codes.rows), 0));
  return matrix.tensor_scale != nullptr ? scale * *matrix.tensor_scale : scale;
}
__device__ __forceinline__ float scale_of_column(const QuantizedMatrix& matrix, std::int64_t col) {
  const auto scale = static_cast<float>(
      load_value(matrix.scales, 0, col / tile_extent(matrix.tile.cols, matrix.codes.cols)));
  return matrix.tensor_scale != nullptr ? scale * *matrix.tensor_scale : scale;
}

// Scales of the channels that a lane has: of column 8 j + 2 (lane % 4) + e at 2 j + e. They are
// loaded ahead of where they are used, because that takes as long as a product.
template <int kCols>
struct LaneChannels {
  float scale[kCols / 4];

  __device__ __forceinline__ void load(const ForwardPlan& plan, int batch, int kv_head) {
    const bool scaled = plan.v_scales.first != nullptr;
    const float* const from = plan.v_scales.at(batch, kv_head);
    const int cols = static_cast<int>(plan.job.out.first.cols()),
              first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < kCols / 4; ++i) {
      const int col = i / 2 * 8 + first + i % 2;
      scale[i] = scaled && col < cols ? from[col * plan.v_scales.step] : 1.0F;
    }
  }
};

// Running maximum of two rows. Scores come in a unit of their own: score = unit * raw.
struct RowTops {
  float raw[2] = {-HUGE_VALF, -HUGE_VALF};  // the largest score
  float top[2] = {-HUGE_VALF, -HUGE_VALF};  // M: rounded up to an integer
  float shrink[2] = {1.0F, 1.0F};           // what sums of earlier tiles are multiplied by

  // Takes the largest score of a tile. A NaN stays.
  __device__ __forceinline__ void raise(int r, float tile_most, float unit) {
    raw[r] = max_or_nan(raw[r], tile_most);
    const float higher = ceilf(raw[r] * unit);
    const float before = top[r];
    top[r] = higher;
    // -inf - -inf is NaN; nothing has been summed then.
    shrink[r] = before == higher ? 1.0F : fast_exp2(before - higher);
  }
  // M as scores subtract it: that of a row that has seen no key is any number.
  [[nodiscard]] __device__ __forceinline__ float base(int r) const {
    return top[r] == -HUGE_VALF ? 0.0F : top[r];
  }
};

// Whether a tile of V in shared memory has a number that is not finite: bf16, or e4m3 codes. The
// threads of a block's consumers share it.
template <typename Kernel>
__device__ __forceinline__ bool has_non_finite(SharedAddress v, int thread) {
  std::uint32_t found = 0;
  for (int i = thread; i < Kernel::kVLoaded / 16; i += Kernel::kGroups * 128) {
    const uint4 four = load_shared_vector(v + i * 16);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const std::uint32_t word = (&four.x)[w];
      // All bits of the exponent, or of a code, carry into the sign.
      found |= Kernel::kIsFast ? (word & 0x7F7F7F7Fu) + 0x01010101u & 0x80808080u
                               : (word & 0x7F807F80u) + 0x00800080u & 0x80008000u;
    }
  }
  return found != 0;
}
template <typename Kernel>
__device__ __forceinline__ void note_doubt(const ForwardPlan& plan, const ForwardWork& work,
                                           SharedAddress v) {
  if (!has_non_finite<Kernel>(v, static_cast<int>(threadIdx.x))) return;
  const std::int64_t head = work.batch * plan.job.heads + work.head;
  plan.doubts[head * plan.job.queries + work.first] =
      static_cast<std::uint8_t>(work.end - work.first);
}

// The keys that a row sees, in a tile, as bounds of the column numbers of a lane: 8 j + e.
struct LaneKeys {
  int low = 0, high = 0;
};
__device__ __forceinline__ LaneKeys lane_keys(const AttentionJob::Keys& keys, int first) {
  return {static_cast<int>(keys.begin) - first, static_cast<int>(keys.end) - first};
}

// Results of a row beside its values.
struct RowEnd {
  float factor = 0.0F;  // of the sums of weighted values
};

// Whether a row is done again with scores and weights in f32. The output is off by
// sum_j w_j d_j (v_j - out), where d_j is the error of a weight: a standard deviation of 1.7 * 2^-9
// at worst for bf16, beside `score_error` of the score. Values of a deviation of one are then off
// by d sqrt(F), F = sum_j w_j^2 (1 - 2 w_j + sum w^2), which the largest weight w bounds: by w (1 -
// w) up to a half, by 4 w^2 (1 - w)^2 above. A quarter of 5e-3 is let through
// (docs/numerics/attention.md, rows that are recomputed).
__device__ __forceinline__ bool is_doubtful(float weight, float score, float score_error) {
  constexpr float kOfWeight = 1.7F * 0x1p-9F, kMost = 5e-3F / 4.0F;
  const float of_score = score_error * score, left = weight * (1.0F - weight);
  const float spread = weight < 0.5F ? left : 4.0F * left * left;
  return (kOfWeight * kOfWeight + of_score * of_score) * spread > kMost * kMost;
}

// `sum`: of P, which is p times p_factor, that of the kernel. Lanes of a row have the same;
// `writes` in one of them.
__device__ __forceinline__ RowEnd finish_row(const ForwardPlan& plan, const ForwardWork& work,
                                             std::int64_t row, const RowTops& tops, int r,
                                             float unit, float sum, float p_factor,
                                             float score_error, bool writes) {
  const AttentionJob& job = plan.job;
  const std::int64_t rows =
      job.query_lengths != nullptr ? job.query_lengths[work.batch] : job.queries;
  const bool is_padding = row >= rows;
  const float share_of_one = sum / p_factor;
  const bool empty = is_padding || tops.top[r] == -HUGE_VALF;
  const double log2_sum =
      empty ? -HUGE_VAL
            : static_cast<double>(tops.top[r]) + static_cast<double>(log2f(share_of_one));
  BesideSink beside{.log2_sum = -HUGE_VAL};
  if (!is_padding) beside = beside_sink(job.sinks, work.head, log2_sum);
  const float share = static_cast<float>(beside.share);
  RowEnd end{.factor = empty ? (beside.poisoned ? static_cast<float>(NAN) : 0.0F) : share / sum};
  if (!writes || row >= work.end) return end;
  const std::int64_t at = (work.batch * job.heads + work.head) * job.queries + row;
  const float largest = empty ? 0.0F : fast_exp2(__fmaf_rn(tops.raw[r], unit, -tops.top[r]));
  const float weight = empty ? 0.0F : largest * share / share_of_one;
  if (job.largest_weight != nullptr)
    job.largest_weight[at] = beside.poisoned ? static_cast<float>(NAN) : weight;
  if (plan.row_doubts != nullptr)
    plan.row_doubts[at] = is_doubtful(weight, tops.raw[r] * unit * 0.6931472F, score_error) ? 1 : 0;
  if (job.p_amax != nullptr && largest > 0.0F)
    atomicMax(reinterpret_cast<int*>(job.p_amax), __float_as_int(largest));
  if (job.log_sum_exp != nullptr)
    job.log_sum_exp[at] = static_cast<float>(beside.log2_sum * 0.6931471805599453);
  return end;
}

}  // namespace octavo::cuda
