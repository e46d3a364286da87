// Launches of the general attention kernel: all rows of a job, listed rows, or rows that another
// kernel could not do.
#include "octavo/backend/cuda/attention/general.h"
#include "octavo/backend/cuda/attention/general_tile.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"

namespace octavo::cuda {
namespace {

// Blocks that share the rows of one range, whose number is not known to the host.
constexpr int kBlocksOfRange = 8;
// Blocks that look for rows to do again.
constexpr int kBlocksOfAgain = 264;

template <typename Real>
__global__ void __launch_bounds__(kThreads)
    attention_general_kernel(const __grid_constant__ GeneralPlan plan) {
  __shared__ alignas(16) Tiles<Real> tiles;
  constexpr int kSide = Shape<Real>::kSide;
  const AttentionJob& job = plan.job;
  const std::int64_t block = blockIdx.x;
  const bool listed = plan.rows.positions != nullptr;
  const bool of_range = job.ranges != nullptr && !listed;
  // Several blocks share a range; else a block has one tile of a head. The last rows first: under a
  // causal mask they have the most keys.
  const std::int64_t head = block / plan.tiles;
  AttentionRange rows{.batch = head / job.heads,
                      .head = head % job.heads,
                      .first = 0,
                      .count = listed ? plan.rows.count : job.queries};
  if (of_range) rows = job.ranges[block / kBlocksOfRange];
  const std::int64_t begin =
                         (of_range ? block % kBlocksOfRange : plan.tiles - 1 - block % plan.tiles) *
                         kSide,
                     step = of_range ? kBlocksOfRange * kSide : rows.count;
  for (std::int64_t first = begin; first < rows.count; first += step)
    Block<Real, false>(
        plan, tiles,
        {rows.batch, rows.head, rows.first + first, rows.first + min(first + kSide, rows.count)})
        .run();
}

// Blocks go through the counts of all rows; few are not zero.
__global__ void __launch_bounds__(kThreads)
    attention_again_kernel(const __grid_constant__ GeneralPlan plan, const std::uint8_t* counts) {
  __shared__ alignas(16) Tiles<float> tiles;
  constexpr int kSide = Shape<float>::kSide;
  const AttentionJob& job = plan.job;
  const std::int64_t all = job.batches * job.heads * job.queries;
  for (std::int64_t from = static_cast<std::int64_t>(blockIdx.x) * kThreads; from < all;
       from += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::int64_t at = from + threadIdx.x;
    if (__syncthreads_or(at < all && counts[at] != 0) == 0) continue;
    for (std::int64_t i = from; i < min(from + kThreads, all); ++i) {
      if (counts[i] == 0) continue;
      const std::int64_t head = i / job.queries, begin = i % job.queries;
      for (std::int64_t first = 0; first < counts[i]; first += kSide)
        Block<float, true>(plan, tiles,
                           {head / job.heads, head % job.heads, begin + first,
                            begin + min(first + kSide, static_cast<std::int64_t>(counts[i]))})
            .run();
    }
  }
}

// The operands as values: codes are decoded once, into memory of their own.
class Decoded {
 public:
  Decoded(const Exec& exec, const AttentionOperand& operand, std::int64_t batches,
          std::int64_t heads, DType to)
      : made_(operand),
        memory_(exec, operand.first.is_quantized()
                          ? static_cast<std::size_t>(batches * heads * operand.first.rows() *
                                                     operand.first.cols() * element_bytes(to, {}))
                          : 0) {
    if (!operand.first.is_quantized()) return;
    decode_operand(exec, operand, batches, heads, to, memory_.as<void>());
    const std::int64_t bytes = element_bytes(to, {}), rows = operand.first.rows(),
                       cols = operand.first.cols();
    made_ = {.batch_pitch = heads * rows * cols * bytes, .head_pitch = rows * cols * bytes};
    made_.first.values = {.data = memory_.as<void>(),
                          .dtype = to,
                          .rows = rows,
                          .cols = cols,
                          .row_pitch = cols * bytes,
                          .col_stride = bytes};
  }
  [[nodiscard]] const AttentionOperand& operand() const { return made_; }

 private:
  AttentionOperand made_;
  Scratch memory_;
};

template <typename Real>
void launch(const Exec& exec, GeneralPlan plan) {
  constexpr int kSide = Shape<Real>::kSide, kWidth = Shape<Real>::kWidth;
  const AttentionJob& job = plan.job;
  const bool listed = plan.rows.positions != nullptr;
  const std::int64_t rows = listed ? plan.rows.count : job.queries;
  plan.tiles = (rows + kSide - 1) / kSide;
  const std::int64_t blocks = job.ranges != nullptr && !listed
                                  ? job.range_count * kBlocksOfRange
                                  : plan.tiles * job.heads * job.batches;
  if (blocks == 0) return;
  const dim3 grid(blocks_for(blocks, 1),
                  static_cast<unsigned>((job.out.first.cols() + kWidth - 1) / kWidth));
  attention_general_kernel<Real><<<grid, kThreads, 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("attention_general_kernel");
}

GeneralPlan plan_of(const AttentionJob& job, const GeneralRows& rows) {
  const auto rounds = [&](const AttentionOperand& operand) {
    return job.values == DType::bf16 && !operand.first.is_quantized() &&
           operand.first.values.dtype != DType::bf16;
  };
  return {.job = job, .rows = rows, .to_bf16 = {rounds(job.q), rounds(job.k), rounds(job.v)}};
}

}  // namespace

void attention_general_again(const Exec& exec, const AttentionJob& job,
                             const std::uint8_t* counts) {
  constexpr int kWidth = Shape<float>::kWidth;
  const std::int64_t rows = job.batches * job.heads * job.queries;
  const dim3 grid(static_cast<unsigned>(
                      std::min<std::int64_t>((rows + kThreads - 1) / kThreads, kBlocksOfAgain)),
                  static_cast<unsigned>((job.out.first.cols() + kWidth - 1) / kWidth));
  attention_again_kernel<<<grid, kThreads, 0, stream_of(exec)>>>(plan_of(job, {}), counts);
  OCTAVO_CUDA_LAUNCHED("attention_again_kernel");
}

void attention_general(const Exec& exec, const AttentionJob& job, const GeneralRows& rows) {
  const bool wide = job.p == AttentionP::f64 || job.values == DType::f64;
  const DType to = wide ? DType::f64 : DType::f32;
  const Exec inner = without_workspace(exec);  // three operands would share the workspace
  const Decoded q(inner, job.q, job.batches, job.heads, to),
      k(inner, job.k, job.batches, job.kv_heads, to),
      v(inner, job.v, job.batches, job.kv_heads, to);
  GeneralPlan plan = plan_of(job, rows);
  plan.job.q = q.operand();
  plan.job.k = k.operand();
  plan.job.v = v.operand();
  return wide ? launch<double>(exec, plan) : launch<float>(exec, plan);
}

}  // namespace octavo::cuda
