#include "octavo/backend/cuda/attention/forward/forward_prepare.h"

#include "octavo/backend/cuda/attention/forward/forward_prepare.cuh"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

bool has_vectors(const AttentionOperand& operand) {
  const Matrix& matrix = operand.first.elements();
  return matrix.cols % 16 == 0 && matrix.col_stride == 1 && has_aligned_rows(matrix, 16) &&
         operand.head_pitch % 16 == 0 && operand.batch_pitch % 16 == 0;
}

PrepareOperand prepare_of(const AttentionOperand& from, std::int64_t heads,
                          const std::int64_t* lengths, std::int64_t padded_rows, void* to) {
  PrepareOperand made;
  made.from = from;
  made.heads = heads;
  made.padded_rows = padded_rows;
  made.lengths = lengths;
  made.to = to;
  made.vectors = from.first.elements().dtype == DType::code && has_vectors(from);
  return made;
}

dim3 grid_of(std::int64_t blocks, std::int64_t heads, std::int64_t batches) {
  return {blocks_for(blocks, 1), blocks_for(heads, 1), blocks_for(batches, 1)};
}

constexpr int kShiftWarps = 8;

// A warp has a row.
__global__ void __launch_bounds__(kShiftWarps * 32)
    add_key_shift_kernel(const __grid_constant__ AttentionJob job) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kShiftWarps + threadIdx.x / 32,
                     head = blockIdx.y, batch = blockIdx.z;
  if (row >= job.queries) return;
  float& sum = job.log_sum_exp[(batch * job.heads + head) * job.queries + row];
  const AttentionJob::Keys keys = job.keys_of(batch, row);
  if (keys.begin >= keys.end) return;
  const GemmOperand q = job.q.at(batch, head);
  const std::int64_t cols = q.cols();
  const float* const shift = job.key_shift + (batch * job.kv_heads + job.kv_head(head)) * cols;
  double along = 0.0;
  for (std::int64_t d = threadIdx.x % 32; d < cols; d += 32) {
    double number = 0.0;
    if (q.is_quantized())
      number = dequantized(q.quantized, row, d);
    else
      load_number(q.values, row, d, job.values == DType::bf16, number);
    along += number * static_cast<double>(shift[d]);
  }
  for (int step = 16; step > 0; step /= 2) along += __shfl_xor_sync(0xFFFFFFFFu, along, step);
  if (threadIdx.x % 32 == 0)
    sum = static_cast<float>(static_cast<double>(sum) + along * job.softmax_scale);
}

__global__ void __launch_bounds__(kPrepareThreads)
    dense_scales_kernel(const __grid_constant__ PrepareOperand job, bool of_rows) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kPrepareThreads + threadIdx.x,
                     head = blockIdx.y, batch = blockIdx.z;
  if (at >= job.padded_rows) return;
  const QuantizedMatrix from = job.from.at(batch, head).quantized;
  static_cast<float*>(job.to)[(batch * job.heads + head) * job.padded_rows + at] =
      of_rows ? scale_of_row(from, at) : scale_of_column(from, at);
}

}  // namespace

void values_in_fragment_order(const Exec& exec, const AttentionOperand& from, std::int64_t batches,
                              std::int64_t heads, const std::int64_t* lengths,
                              std::int64_t padded_rows, void* to) {
  const PrepareOperand job = prepare_of(from, heads, lengths, padded_rows, to);
  const dim3 grid = grid_of(padded_rows / 128, heads, batches);
  if (from.first.cols() <= 64)
    fragment_values_kernel<64><<<grid, kPrepareThreads, 0, stream_of(exec)>>>(job);
  else
    fragment_values_kernel<128><<<grid, kPrepareThreads, 0, stream_of(exec)>>>(job);
  OCTAVO_CUDA_LAUNCHED("fragment_values_kernel");
}

void to_dense_bf16(const Exec& exec, const AttentionOperand& from, std::int64_t batches,
                   std::int64_t heads, const std::int64_t* lengths, void* to) {
  const PrepareOperand job = prepare_of(from, heads, lengths, 0, to);
  const Matrix& matrix = from.first.elements();
  const bool is_e4m3 = job.vectors && matrix.format == e4m3fn;
  const std::int64_t pieces = matrix.rows * matrix.cols / (is_e4m3 ? 16 : 8);
  const dim3 grid = grid_of((pieces + kPrepareThreads - 1) / kPrepareThreads, heads, batches);
  if (is_e4m3)
    e4m3_to_bf16_kernel<<<grid, kPrepareThreads, 0, stream_of(exec)>>>(job);
  else
    to_bf16_kernel<<<grid, kPrepareThreads, 0, stream_of(exec)>>>(job);
  OCTAVO_CUDA_LAUNCHED("to_bf16_kernel");
}

void key_scales(const Exec& exec, const AttentionOperand& from, const ForwardScales& plain,
                std::int64_t batches, std::int64_t heads, const std::int64_t* lengths,
                std::int64_t padded_rows, void* to, float* most) {
  const PrepareOperand job = prepare_of(from, heads, lengths, padded_rows, to);
  const dim3 grid(blocks_for(heads, 1), blocks_for(batches, 1));
  if (most != nullptr)
    key_scales_kernel<__half><<<grid, 1024, 0, stream_of(exec)>>>(job, plain, most);
  else
    key_scales_kernel<float><<<grid, 1024, 0, stream_of(exec)>>>(job, plain, nullptr);
  OCTAVO_CUDA_LAUNCHED("key_scales_kernel");
}

void dense_scales(const Exec& exec, const AttentionOperand& from, std::int64_t batches,
                  std::int64_t heads, bool of_rows, float* to) {
  const std::int64_t count = of_rows ? from.first.rows() : from.first.cols();
  const PrepareOperand job = prepare_of(from, heads, nullptr, count, to);
  const dim3 grid = grid_of((count + kPrepareThreads - 1) / kPrepareThreads, heads, batches);
  dense_scales_kernel<<<grid, kPrepareThreads, 0, stream_of(exec)>>>(job, of_rows);
  OCTAVO_CUDA_LAUNCHED("dense_scales_kernel");
}

void add_key_shift(const Exec& exec, const AttentionJob& job) {
  const dim3 grid = grid_of((job.queries + kShiftWarps - 1) / kShiftWarps, job.heads, job.batches);
  add_key_shift_kernel<<<grid, kShiftWarps * 32, 0, stream_of(exec)>>>(job);
  OCTAVO_CUDA_LAUNCHED("add_key_shift_kernel");
}

}  // namespace octavo::cuda
