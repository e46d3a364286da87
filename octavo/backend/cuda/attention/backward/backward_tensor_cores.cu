// Launches of the tensor-core backward pass: log-sum-exps and delta of rows, the kernel itself, and
// dQ from its f32 sums.
#include "octavo/backend/cuda/attention/backward/backward_tensor_cores.h"

#include <algorithm>

#include "octavo/backend/cuda/attention/backward/backward_kernel.cuh"
#include "octavo/backend/cuda/attention/backward/backward_rows.cuh"
#include "octavo/backend/cuda/hopper/tensor_map.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 24;  // 32-bit arithmetic of tiles
// Blocks of this many heads take turns, so that those of one head do not wait for each other, as
// long as what they read and add to stays in the L2 cache.
constexpr std::int64_t kBytesTogether = std::int64_t{64} << 20;

// Parts of the memory, in order.
struct BackwardMemory {
  explicit BackwardMemory(const AttentionBackwardJob& job) {
    const AttentionJob& forward = job.forward;
    const int queries = backward_queries(static_cast<int>(forward.q.first.cols()));
    tiles = (forward.queries + queries - 1) / queries;
    const std::int64_t heads = forward.batches * forward.heads;
    const auto take = [&](std::int64_t count) {
      const std::int64_t at = bytes;
      bytes += (count * 4 + 255) / 256 * 256;
      return at;
    };
    ticket = take(1);
    turns = take(heads * tiles);
    minus_lse = take(heads * tiles * queries);
    delta = take(heads * tiles * queries);
    sums = take(heads * tiles * kBackwardWarpgroups * kBackwardPart);
  }
  std::int64_t tiles = 0, ticket = 0, turns = 0, minus_lse = 0, delta = 0, sums = 0, bytes = 0;
};

bool is_bf16(const AttentionOperand& of) {
  return !of.first.is_quantized() && of.first.values.dtype == DType::bf16;
}

// Rows that 16-byte accesses and TMA can read or write.
bool is_aligned(const AttentionOperand& of, std::int64_t element) {
  const Matrix& rows = of.first.values;
  const auto fits = [](std::int64_t pitch) { return pitch >= 0 && pitch % 16 == 0; };
  return (rows.cols <= 1 || rows.col_stride == element) && has_aligned_pitch(rows, 16) &&
         fits(rows.row_pitch) && fits(of.batch_pitch) && fits(of.head_pitch);
}

bool is_result(const AttentionOperand& of) {
  const DType dtype = of.first.values.dtype;
  return (dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16) &&
         is_aligned(of, dtype == DType::f32 ? 4 : 2);
}

bool is_given_out(const AttentionJob& job) {
  if (job.log_sum_exp == nullptr) return true;
  const DType dtype = job.out.first.values.dtype;
  return (dtype == DType::f32 || dtype == DType::bf16) &&
         is_aligned(job.out, dtype == DType::f32 ? 4 : 2);
}

BackwardResult result_of(const AttentionOperand& to) {
  return {static_cast<unsigned char*>(to.first.values.data), to.batch_pitch, to.head_pitch,
          to.first.values.row_pitch, to.first.values.dtype};
}
BackwardSource source_of(const AttentionOperand& from) {
  return {static_cast<const unsigned char*>(from.first.values.data), from.batch_pitch,
          from.head_pitch, from.first.values.row_pitch};
}

int limit_of(std::int64_t given) {
  constexpr std::int64_t kNone = INT_MAX / 4;
  return static_cast<int>(given < 0 ? kNone : std::min(given, kNone));
}

BackwardPlan plan_of(const AttentionBackwardJob& job, const BackwardMemory& parts, void* memory,
                     unsigned* declined) {
  const AttentionJob& forward = job.forward;
  const int depth = static_cast<int>(forward.q.first.cols()), queries = backward_queries(depth);
  auto* const at = static_cast<unsigned char*>(memory);
  constexpr double kLog2E = 1.4426950408889634;
  BackwardPlan plan{};
  const auto map_of = [&](const AttentionOperand& of, std::int64_t heads, int rows) {
    return tensor_map_of_heads(of.first.values, heads, of.head_pitch, forward.batches,
                               of.batch_pitch, kRowBytes, rows);
  };
  plan.q = map_of(forward.q, forward.heads, queries);
  plan.d_out = map_of(job.d_out, forward.heads, queries);
  plan.k = map_of(forward.k, forward.kv_heads, kBackwardKeys);
  plan.v = map_of(forward.v, forward.kv_heads, kBackwardKeys);
  plan.d_q = result_of(job.d_q);
  plan.d_k = result_of(job.d_k);
  plan.d_v = result_of(job.d_v);
  plan.minus_lse = reinterpret_cast<float*>(at + parts.minus_lse);
  plan.delta = reinterpret_cast<float*>(at + parts.delta);
  plan.d_q_sums = reinterpret_cast<float*>(at + parts.sums);
  plan.turns = reinterpret_cast<unsigned*>(at + parts.turns);
  plan.ticket = reinterpret_cast<unsigned*>(at + parts.ticket);
  plan.declined = declined;
  plan.batches = static_cast<int>(forward.batches);
  plan.heads = static_cast<int>(forward.heads);
  plan.kv_heads = static_cast<int>(forward.kv_heads);
  plan.queries = static_cast<int>(forward.queries);
  plan.keys = static_cast<int>(forward.keys);
  plan.tiles = static_cast<int>(parts.tiles);
  plan.key_blocks = (plan.keys + kBackwardKeys - 1) / kBackwardKeys;
  // Q and dO in bf16 and the sums of dQ.
  const std::int64_t head_bytes =
      forward.heads / forward.kv_heads * forward.queries * depth * std::int64_t{8};
  plan.together = static_cast<int>(
      std::clamp<std::int64_t>(kBytesTogether / std::max<std::int64_t>(1, head_bytes), 1,
                               forward.batches * forward.kv_heads));
  plan.left = limit_of(forward.left);
  plan.right = limit_of(forward.right);
  plan.bottom_right = forward.bottom_right;
  plan.query_lengths = forward.query_lengths;
  plan.key_lengths = forward.key_lengths;
  plan.scale = static_cast<float>(forward.softmax_scale);
  plan.log2_scale = static_cast<float>(forward.softmax_scale * kLog2E);
  plan.soft_cap = static_cast<float>(forward.soft_cap * kLog2E);
  plan.over_cap =
      forward.soft_cap == 0.0 ? 0.0F : static_cast<float>(forward.softmax_scale / forward.soft_cap);
  plan.dropout = forward.dropout;
  return plan;
}

template <int kDepth, bool kCapped, bool kDrops>
void launch_kernel(const Exec& exec, const BackwardPlan& plan) {
  using Shape = BackwardShape<kDepth>;
  const auto kernel = attention_backward_kernel<kDepth, kCapped, kDrops>;
  OCTAVO_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(Shape::kSharedBytes)));
  const unsigned blocks =
      blocks_for(std::int64_t{plan.key_blocks} * plan.batches * plan.kv_heads, 1);
  if (blocks == 0) return;
  kernel<<<blocks, Shape::kThreads, Shape::kSharedBytes, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("attention_backward_kernel");
}

template <int kDepth>
void launch(const Exec& exec, const AttentionBackwardJob& job, const BackwardPlan& plan) {
  const AttentionJob& forward = job.forward;
  constexpr int kAtOnce = 256 / (kDepth / 8);
  BackwardRows rows{.plan = plan,
                    .q = source_of(forward.q),
                    .k = source_of(forward.k),
                    .v = source_of(forward.v),
                    .d_out = source_of(job.d_out),
                    .out = source_of(forward.out),
                    .out_dtype = forward.out.first.values.dtype,
                    .log_sum_exp = forward.log_sum_exp,
                    .minus_lse = const_cast<float*>(plan.minus_lse),
                    .delta = const_cast<float*>(plan.delta)};
  const std::int64_t most =
      std::max<std::int64_t>(std::int64_t{plan.tiles} * backward_queries(kDepth), plan.keys);
  const auto heads = static_cast<unsigned>(plan.batches * std::max(plan.heads, plan.kv_heads));
  attention_backward_rows_kernel<kDepth>
      <<<dim3(blocks_for(most, kAtOnce), heads, 2), 256, 0, stream_of(exec)>>>(rows);
  OCTAVO_CUDA_LAUNCHED("attention_backward_rows_kernel");
  const bool caps = forward.soft_cap != 0.0, drops = forward.dropout.exists();
  if (caps && drops)
    launch_kernel<kDepth, true, true>(exec, plan);
  else if (caps)
    launch_kernel<kDepth, true, false>(exec, plan);
  else if (drops)
    launch_kernel<kDepth, false, true>(exec, plan);
  else
    launch_kernel<kDepth, false, false>(exec, plan);
  attention_backward_d_q_kernel<kDepth>
      <<<dim3(static_cast<unsigned>(plan.tiles * kBackwardWarpgroups),
              static_cast<unsigned>(plan.batches * plan.heads)),
         128, 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("attention_backward_d_q_kernel");
  if (job.d_sinks == nullptr) return;
  attention_backward_sinks_kernel<<<static_cast<unsigned>(plan.heads), 256, 0, stream_of(exec)>>>(
      plan, forward.sinks, job.d_sinks,
      static_cast<std::int64_t>(plan.tiles) * backward_queries(kDepth));
  OCTAVO_CUDA_LAUNCHED("attention_backward_sinks_kernel");
}

}  // namespace

bool attention_backward_on_tensor_cores(const AttentionBackwardJob& job) {
  const AttentionJob& forward = job.forward;
  const std::int64_t depth = forward.q.first.cols();
  return forward.p == AttentionP::bf16 && forward.values != DType::f64 &&
         (depth == 64 || depth == 128) && forward.v.first.cols() == depth && is_bf16(forward.q) &&
         is_bf16(forward.k) && is_bf16(forward.v) && is_bf16(job.d_out) &&
         is_aligned(forward.q, 2) && is_aligned(forward.k, 2) && is_aligned(forward.v, 2) &&
         is_aligned(job.d_out, 2) && is_result(job.d_q) && is_result(job.d_k) &&
         is_result(job.d_v) && is_given_out(forward) && forward.bias.first == nullptr &&
         !forward.pages.exist() && forward.queries > 0 && forward.keys > 0 &&
         forward.queries <= kMostRows && forward.keys <= kMostRows &&
         forward.batches * forward.heads > 0 && forward.batches * forward.heads <= 65535;
}

std::int64_t attention_backward_tensor_core_bytes(const AttentionBackwardJob& job) {
  return BackwardMemory(job).bytes;
}

void attention_backward_tensor_cores(const Exec& exec, const AttentionBackwardJob& job,
                                     void* memory, unsigned* declined) {
  const BackwardMemory parts(job);
  const BackwardPlan plan = plan_of(job, parts, memory, declined);
  OCTAVO_CUDA_CHECK(cudaMemsetAsync(plan.ticket, 0, 4, stream_of(exec)));
  OCTAVO_CUDA_CHECK(cudaMemsetAsync(declined, 0, 4, stream_of(exec)));
  return job.forward.q.first.cols() == 64 ? launch<64>(exec, job, plan)
                                          : launch<128>(exec, job, plan);
}

}  // namespace octavo::cuda
