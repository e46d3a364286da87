// Pages to rows of values: every key of every batch up to its length, NaN where its page is not one
// of the pool.
#include "octavo/backend/cuda/attention/decode/decode_pages.h"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gather_pages_kernel(const __grid_constant__ AttentionJob job,
                        const __grid_constant__ AttentionOperand pool,
                        const __grid_constant__ Matrix to) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                     cols = to.cols;
  if (at >= to.rows * cols) return;
  const std::int64_t line = at / cols, col = at % cols, key = line % job.keys,
                     head = line / job.keys % job.kv_heads, batch = line / job.keys / job.kv_heads;
  if (job.key_lengths != nullptr && key >= job.key_lengths[batch])
    return store_value(to, line, col, 0.0);
  const std::int64_t page =
      job.pages.table[batch * job.pages.table_pitch + key / job.pages.page_rows];
  double number = NAN;
  if (page >= 0 && page < job.pages.page_count) {
    const GemmOperand there = pool.at(page, head);
    const std::int64_t row = key % job.pages.page_rows;
    number = there.is_quantized() ? dequantized(there.quantized, row, col)
                                  : load_value(there.values, row, col);
  }
  store_value(to, line, col, number);
}

// Q in bf16.
__global__ void __launch_bounds__(kThreads)
    round_queries_kernel(const __grid_constant__ AttentionOperand from, std::int64_t heads,
                         const __grid_constant__ Matrix to) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                     rows = from.first.rows();
  if (at >= to.rows * to.cols) return;
  const std::int64_t line = at / to.cols, col = at % to.cols, head = line / rows;
  store_value(to, line, col,
              load_value(from.at(head / heads, head % heads).values, line % rows, col));
}

// A type that holds the numbers of an operand as the job takes them: codes are not rounded, and
// values are here and not again.
DType type_of(const AttentionJob& job, const AttentionOperand& operand) {
  if (job.p == AttentionP::f64 || job.values == DType::f64) return DType::f64;
  if (operand.first.is_quantized()) return DType::f32;
  return job.values == DType::bf16 ? DType::bf16 : operand.first.values.dtype;
}

AttentionOperand dense(void* memory, DType dtype, std::int64_t heads, std::int64_t rows,
                       std::int64_t cols) {
  const std::int64_t bytes = element_bytes(dtype);
  AttentionOperand made{.batch_pitch = heads * rows * cols * bytes,
                        .head_pitch = rows * cols * bytes};
  made.first.values = {.data = memory,
                       .dtype = dtype,
                       .rows = rows,
                       .cols = cols,
                       .row_pitch = cols * bytes,
                       .col_stride = bytes};
  return made;
}

std::size_t bytes_of(const AttentionJob& job, const AttentionOperand& pool) {
  return static_cast<std::size_t>(job.batches * job.kv_heads * job.keys * pool.first.cols() *
                                  element_bytes(type_of(job, pool)));
}

AttentionOperand gather(const Exec& exec, const AttentionJob& job, const AttentionOperand& pool,
                        void* memory) {
  const std::int64_t cols = pool.first.cols(), rows = job.batches * job.kv_heads * job.keys;
  const AttentionOperand made = dense(memory, type_of(job, pool), job.kv_heads, job.keys, cols);
  if (rows * cols == 0) return made;
  Matrix all = made.first.values;
  all.rows = rows;
  gather_pages_kernel<<<blocks_for(rows * cols, kThreads), kThreads, 0, stream_of(exec)>>>(
      job, pool, all);
  OCTAVO_CUDA_LAUNCHED("gather_pages_kernel");
  return made;
}

}  // namespace

GatheredPages::GatheredPages(const Exec& exec, const AttentionJob& job) : job_(job) {
  const Exec inner = without_workspace(exec);  // the copies would share the workspace
  keys_.emplace(inner, bytes_of(job, job.k));
  values_.emplace(inner, bytes_of(job, job.v));
  job_.k = gather(exec, job, job.k, keys_->as<void>());
  job_.v = gather(exec, job, job.v, values_->as<void>());
  job_.pages = {};
  if (job.values != DType::bf16) return;
  job_.values = DType::f32;
  const std::int64_t cols = job.q.first.cols(), rows = job.batches * job.heads * job.queries;
  if (job.q.first.is_quantized() || rows * cols == 0) return;
  queries_.emplace(inner, static_cast<std::size_t>(rows * cols) * 2);
  job_.q = dense(queries_->as<void>(), DType::bf16, job.heads, job.queries, cols);
  Matrix all = job_.q.first.values;
  all.rows = rows;
  round_queries_kernel<<<blocks_for(rows * cols, kThreads), kThreads, 0, stream_of(exec)>>>(
      job.q, job.heads, all);
  OCTAVO_CUDA_LAUNCHED("round_queries_kernel");
}

}  // namespace octavo::cuda
