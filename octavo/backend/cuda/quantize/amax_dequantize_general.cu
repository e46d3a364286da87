// General fallback for amax, dequantize and the per-tensor scale, element by element.
#include <algorithm>

#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    amax_kernel(const __grid_constant__ QuantizeSource source, AmaxOf of, float* amax) {
  std::uint32_t mine = 0;
  const std::int64_t cols = source.cols(), n = source.rows() * cols;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads)
    mine = max(mine, counted(plain_value(source, false, i / cols, i % cols), of));
  mine = __reduce_max_sync(0xFFFFFFFFu, mine);
  if (threadIdx.x % 32 == 0 && mine != 0) atomicMax(reinterpret_cast<std::uint32_t*>(amax), mine);
}

// The amax of a copy, whose rows and columns are those of job.to.codes.
__global__ void __launch_bounds__(kThreads)
    copied_amax_kernel(const __grid_constant__ CopyJob job, float* amax) {
  std::uint32_t mine = 0;
  const std::int64_t cols = job.to.codes.cols, n = job.to.codes.rows * cols;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads)
    mine = max(mine, counted(seen_value(job, i / cols, i % cols), job.amax_of));
  mine = __reduce_max_sync(0xFFFFFFFFu, mine);
  if (threadIdx.x % 32 == 0 && mine != 0) atomicMax(reinterpret_cast<std::uint32_t*>(amax), mine);
}

__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const __grid_constant__ QuantizedMatrix from,
                      const __grid_constant__ Matrix values) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = at / values.cols, col = at % values.cols;
  if (row >= values.rows) return;
  const double value = dequantized(from, row, col);
  const bool keep = values.dtype == DType::f64 || value != value;
  store_value(values, row, col, keep ? value : static_cast<double>(static_cast<float>(value)));
}

__global__ void tensor_scale_kernel(const __grid_constant__ ScaleSpec spec,
                                    const __grid_constant__ Format element, const float* amax,
                                    float* scale) {
  const float made = tensor_scale_of(spec, element, *amax);
  *scale = made == made ? made : f32_nan();  // arithmetic does not preserve the NaN payload
}

}  // namespace

void amax_general(const Exec& exec, const QuantizeSource& source, AmaxOf of, float* amax) {
  const std::int64_t blocks = (source.rows() * source.cols() + kThreads - 1) / kThreads;
  amax_kernel<<<static_cast<unsigned>(std::min<std::int64_t>(blocks, 4096)), kThreads, 0,
                stream_of(exec)>>>(source, of, amax);
  OCTAVO_CUDA_LAUNCHED("amax_kernel (general)");
}

void amax_as_copied(const Exec& exec, const QuantizeJob& job) {
  const bool transposed = job.hadamard_columnwise;
  CopyJob copy{.source = job.source,
               .transposed = transposed,
               .hadamard = job.hadamard_rowwise || job.hadamard_columnwise,
               .hadamard_to_bf16 = job.hadamard_to_bf16,
               .signs = job.hadamard_signs,
               .amax_of = amax_of(job.scale)};
  copy.to.codes.rows = transposed ? job.source.cols() : job.source.rows();
  copy.to.codes.cols = transposed ? job.source.rows() : job.source.cols();
  const std::int64_t blocks = (job.source.rows() * job.source.cols() + kThreads - 1) / kThreads;
  copied_amax_kernel<<<static_cast<unsigned>(std::min<std::int64_t>(blocks, 4096)), kThreads, 0,
                       stream_of(exec)>>>(copy, job.amax);
  OCTAVO_CUDA_LAUNCHED("copied_amax_kernel");
}

void dequantize_general(const Exec& exec, const QuantizedMatrix& from, const Matrix& values) {
  const unsigned blocks = blocks_for(values.rows * values.cols, kThreads);
  dequantize_kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(from, values);
  OCTAVO_CUDA_LAUNCHED("dequantize_kernel (general)");
}

void tensor_scale(const Exec& exec, const ScaleSpec& spec, const Format& element, const float* amax,
                  float* scale) {
  const Scope scope(exec);
  tensor_scale_kernel<<<1, 1, 0, stream_of(exec)>>>(spec, element, amax, scale);
  OCTAVO_CUDA_LAUNCHED("tensor_scale_kernel");
}

}  // namespace octavo::cuda
