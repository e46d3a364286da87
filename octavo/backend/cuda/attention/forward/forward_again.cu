// A block does a row: its warps go through keys four at a time, with a softmax of their own each,
// and are joined at the end. Lanes have neighbouring channels.
#include "octavo/backend/cuda/attention/forward/forward_again.h"

#include <algorithm>

#include "octavo/backend/cuda/attention/forward/forward_choice.h"
#include "octavo/backend/cuda/attention/forward/forward_rows.cuh"
#include "octavo/backend/cuda/attention/general_rows.cuh"
#include "octavo/backend/cuda/attention/half_pairs.cuh"
#include "octavo/backend/cuda/hopper/pdl.cuh"
#include "octavo/backend/cuda/hopper/pdl_launch.h"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * 32, kMostDepth = 256, kEach = kMostDepth / 32,
              kKeysAtOnce = 4, kBlocks = 264;

struct AgainPlan {
  AttentionJob job;
  ForwardScales q_scales, k_scales, v_scales;  // k_scales: none where they are not plain
  const std::uint8_t *tiles, *rows;
};

// Elements of one head, without scales; bf16 and e4m3 by the hardware.
class Channels {
 public:
  __device__ Channels(const AttentionJob& job, const AttentionOperand& operand, int batch, int head)
      : matrix_(operand.first.elements()),
        rows_(static_cast<const unsigned char*>(matrix_.data) + batch * operand.batch_pitch +
              head * operand.head_pitch),
        to_bf16_(job.values == DType::bf16),
        cols_(static_cast<int>(matrix_.cols)),
        is_code_(matrix_.dtype == DType::code),
        is_fast_(is_code_ ? matrix_.format == Format(e4m3fn) : matrix_.dtype == DType::bf16) {}

  [[nodiscard]] __device__ int cols() const { return cols_; }
  [[nodiscard]] __device__ __forceinline__ float at(std::int64_t row, int col) const {
    const unsigned char* const from = rows_ + row * matrix_.row_pitch + col * matrix_.col_stride;
    if (is_fast_)
      return is_code_
                 ? pair_values(pair_of_e4m3(*from)).x
                 : __uint_as_float(static_cast<std::uint32_t>(load<std::uint16_t>(from)) << 16);
    if (is_code_) return static_cast<float>(decode(matrix_.format, *from));
    Matrix head = matrix_;
    head.data = const_cast<unsigned char*>(rows_);
    float number = 0.0F;
    load_number(head, row, col, to_bf16_, number);
    return number;
  }

 private:
  const Matrix& matrix_;
  const unsigned char* const rows_;
  const bool to_bf16_;
  const int cols_;
  const bool is_code_, is_fast_;
};

struct WarpSums {
  float top = -HUGE_VALF, sum = 0.0F, values[kEach] = {};
};

class AgainRow {
 public:
  __device__ AgainRow(const AgainPlan& plan, int batch, int head, std::int64_t row)
      : plan_(plan),
        job_(plan.job),
        kv_head_(static_cast<int>(job_.kv_head(head))),
        q_(job_, job_.q, batch, head),
        k_(job_, job_.k, batch, kv_head_),
        v_(job_, job_.v, batch, kv_head_),
        keys_(job_.keys_of(batch, row)),
        batch_(batch),
        head_(head),
        row_(row),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    const int depth = q_.cols();
    float unit = static_cast<float>(job_.softmax_scale * 1.4426950408889634);
    if (plan_.q_scales.first != nullptr)
      unit *= plan_.q_scales.at(batch_, head_)[row_ * plan_.q_scales.step];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      of_q_[i] = lane_ + 32 * i < depth ? q_.at(row_, lane_ + 32 * i) : 0.0F;
    WarpSums sums;
    for (std::int64_t key = keys_.begin + warp_ * kKeysAtOnce; key < keys_.end;
         key += kWarps * kKeysAtOnce)
      add_keys(key, static_cast<int>(min(keys_.end - key, std::int64_t{kKeysAtOnce})), unit, depth,
               sums);
    join(sums);
  }

 private:
  __device__ __forceinline__ void add_keys(std::int64_t key, int count, float unit, int depth,
                                           WarpSums& sums) const {
    const int width = v_.cols();
    float scores[kKeysAtOnce], values[kKeysAtOnce][kEach];
#pragma unroll
    for (int n = 0; n < kKeysAtOnce; ++n) {
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int col = lane_ + 32 * i;
        if (n < count && col < depth) sum = __fmaf_rn(of_q_[i], k_.at(key + n, col), sum);
        values[n][i] = n < count && col < width ? v_.at(key + n, col) : 0.0F;
      }
      scores[n] = sum;
    }
    float top = sums.top;
#pragma unroll
    for (int n = 0; n < kKeysAtOnce; ++n) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2)
        scores[n] += __shfl_xor_sync(0xFFFFFFFFu, scores[n], step);
      scores[n] = n < count ? scores[n] * unit * scale_of_key(key + n) : -HUGE_VALF;
      top = max_or_nan(top, scores[n]);
    }
    // A maximum of NaN or +Inf makes NaN of the row.
    if (top == -HUGE_VALF) return;
    const float shrink = exp2f(sums.top - top);
    sums.sum *= shrink;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sums.values[i] *= shrink;
#pragma unroll
    for (int n = 0; n < kKeysAtOnce; ++n) {
      if (n >= count) continue;
      const float p = exp2f(scores[n] - top);
      sums.sum += p;
#pragma unroll
      for (int i = 0; i < kEach; ++i) sums.values[i] = __fmaf_rn(p, values[n][i], sums.values[i]);
    }
    sums.top = top;
  }

  __device__ __forceinline__ float scale_of_key(std::int64_t key) const {
    if (plan_.k_scales.first != nullptr)
      return plan_.k_scales.at(batch_, kv_head_)[key * plan_.k_scales.step];
    if (!job_.k.first.is_quantized()) return 1.0F;
    return scale_of_row(job_.k.at(batch_, kv_head_).quantized, key);
  }

  __device__ void join(const WarpSums& sums) const {
    __shared__ float tops[kWarps], totals[kWarps], values[kWarps][kMostDepth];
    __syncthreads();  // what was there has been read
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[warp_][lane_ + 32 * i] = sums.values[i];
    if (lane_ == 0) {
      tops[warp_] = sums.top;
      totals[warp_] = sums.sum;
    }
    __syncthreads();
    float top = -HUGE_VALF, total = 0.0F;
    for (const float of : tops) top = max_or_nan(top, of);
    const bool empty = top == -HUGE_VALF;
    float shrinks[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      shrinks[w] = empty || tops[w] == -HUGE_VALF ? 0.0F : exp2f(tops[w] - top);
      total += shrinks[w] * totals[w];
    }
    const bool is_padding =
        row_ >= (job_.query_lengths != nullptr ? job_.query_lengths[batch_] : job_.queries);
    BesideSink beside{.log2_sum = -HUGE_VAL};
    if (!is_padding)
      beside = beside_sink(
          job_.sinks, head_,
          empty ? -HUGE_VAL : static_cast<double>(top) + log2(static_cast<double>(total)));
    const auto share = static_cast<float>(beside.share);
    const int col = static_cast<int>(threadIdx.x);
    const Matrix out = job_.out.at(batch_, head_).values;
    if (col < out.cols) {
      float sum = 0.0F;
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        if (shrinks[w] != 0.0F) sum = __fmaf_rn(shrinks[w], values[w][col], sum);
      if (plan_.v_scales.first != nullptr)
        sum *= plan_.v_scales.at(batch_, kv_head_)[col * plan_.v_scales.step];
      store_float(out, row_, col,
                  beside.poisoned ? static_cast<float>(NAN)
                  : empty         ? 0.0F
                                  : sum * share / total);
    }
    if (threadIdx.x != 0) return;
    const std::int64_t at = (batch_ * job_.heads + head_) * job_.queries + row_;
    if (job_.largest_weight != nullptr)
      job_.largest_weight[at] = beside.poisoned ? static_cast<float>(NAN)
                                : empty         ? 0.0F
                                                : share / total;
    if (job_.log_sum_exp != nullptr)
      job_.log_sum_exp[at] = static_cast<float>(beside.log2_sum * 0.6931471805599453);
  }

  const AgainPlan& plan_;
  const AttentionJob& job_;
  const int kv_head_;
  const Channels q_, k_, v_;
  const AttentionJob::Keys keys_;
  const int batch_, head_;
  const std::int64_t row_;
  const int warp_, lane_;
  float of_q_[kEach] = {};
};

// Rows in doubt lie together, where rows see few keys: neighbours go to different blocks.
__global__ void __launch_bounds__(kThreads)
    attention_rows_again_kernel(const __grid_constant__ AgainPlan plan) {
  pdl_wait();
  const AttentionJob& job = plan.job;
  const std::int64_t all = job.batches * job.heads * job.queries, blocks = gridDim.x;
  for (const std::uint8_t* const counts : {plan.tiles, plan.rows}) {
    if (counts == nullptr) continue;
    for (std::int64_t from = blockIdx.x; from < all; from += kThreads * blocks) {
      const std::int64_t at = from + threadIdx.x * blocks;
      if (__syncthreads_or(at < all && counts[at] != 0) == 0) continue;
      for (std::int64_t i = from; i < min(from + kThreads * blocks, all); i += blocks)
        for (int n = 0; n < counts[i]; ++n) {
          const int head = static_cast<int>(i / job.queries), heads = static_cast<int>(job.heads);
          AgainRow(plan, head / heads, head % heads, i % job.queries + n).run();
        }
    }
  }
}

}  // namespace

void attention_rows_again(const Exec& exec, const ForwardPlan& forward) {
  const AttentionJob& job = forward.job;
  const std::int64_t all = job.batches * job.heads * job.queries;
  AgainPlan plan;
  plan.job = job;
  plan.q_scales = forward.q_scales;
  if (forward.key_scales == nullptr || has_plain_scales(job.k, true))
    plan.k_scales = forward.k_scales;
  plan.v_scales = forward.v_scales;
  plan.tiles = forward.doubts;
  plan.rows = forward.row_doubts;
  launch_pdl(
      exec,
      dim3(static_cast<unsigned>(std::min<std::int64_t>((all + kThreads - 1) / kThreads, kBlocks))),
      kThreads, attention_rows_again_kernel, plan);
}

}  // namespace octavo::cuda
