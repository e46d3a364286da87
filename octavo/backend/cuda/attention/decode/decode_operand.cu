// Codes of all batches and heads as dense values, by the definition of their scales.
#include "octavo/backend/cuda/attention/general.h"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    decode_operand_kernel(const __grid_constant__ AttentionOperand from, std::int64_t heads,
                          const __grid_constant__ Matrix to) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                     cols = to.cols;
  if (at >= to.rows * cols) return;
  const std::int64_t line = at / cols, rows = from.first.rows(), head = line / rows;
  const GemmOperand there = from.at(head / heads, head % heads);
  store_value(to, line, at % cols, dequantized(there.quantized, line % rows, at % cols));
}

}  // namespace

void decode_operand(const Exec& exec, const AttentionOperand& from, std::int64_t batches,
                    std::int64_t heads, DType to, void* values) {
  const std::int64_t bytes = element_bytes(to, {}), rows = from.first.rows(),
                     cols = from.first.cols(), count = batches * heads * rows * cols;
  if (count == 0) return;
  const Matrix dense{.data = values,
                     .dtype = to,
                     .rows = batches * heads * rows,
                     .cols = cols,
                     .row_pitch = cols * bytes,
                     .col_stride = bytes};
  decode_operand_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream_of(exec)>>>(from, heads,
                                                                                       dense);
  OCTAVO_CUDA_LAUNCHED("decode_operand_kernel");
}

}  // namespace octavo::cuda
