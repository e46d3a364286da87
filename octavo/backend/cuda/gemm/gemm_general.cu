// General GEMM fallback: any operands, in f32 or f64, without tensor cores; slow. Operands are
// decoded while they are loaded into shared memory, or beforehand for f32. Each sum runs from k = 0
// on, one fused multiply-add per product.
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/produce/producer_math.cuh"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kSide = 64, kDepth = 16, kEach = 4, kThreads = 256;

template <typename Real>
__device__ __forceinline__ Real number_at(const GemmOperand& operand, std::int64_t row,
                                          std::int64_t col) {
  if (row >= operand.rows() || col >= operand.cols()) return Real{0};
  return static_cast<Real>(operand.is_quantized() ? dequantized(operand.quantized, row, col)
                                                  : load_value(operand.values, row, col));
}

__device__ __forceinline__ float multiply_add(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ double multiply_add(double a, double b, double c) {
  return __fma_rn(a, b, c);
}

template <typename Real>
__global__ void __launch_bounds__(kThreads)
    gemm_general_kernel(const __grid_constant__ GemmJob job, std::int64_t tiles_across) {
  __shared__ Real a[kDepth][kSide + 1], b[kDepth][kSide + 1];
  const std::int64_t first_row = blockIdx.x / tiles_across * kSide,
                     first_col = blockIdx.x % tiles_across * kSide;
  const int thread = static_cast<int>(threadIdx.x), down = thread / 16, across = thread % 16;
  Real sums[kEach][kEach] = {};
  for (std::int64_t k = 0; k < job.a.cols(); k += kDepth) {
    for (int i = thread; i < kSide * kDepth; i += kThreads) {
      a[i % kDepth][i / kDepth] = number_at<Real>(job.a, first_row + i / kDepth, k + i % kDepth);
      b[i % kDepth][i / kDepth] = number_at<Real>(job.b, first_col + i / kDepth, k + i % kDepth);
    }
    __syncthreads();
    for (int d = 0; d < kDepth && k + d < job.a.cols(); ++d)
#pragma unroll
      for (int r = 0; r < kEach; ++r)
#pragma unroll
        for (int c = 0; c < kEach; ++c)
          sums[r][c] = multiply_add(a[d][down + 16 * r], b[d][across + 16 * c], sums[r][c]);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kEach; ++r)
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      const std::int64_t row = first_row + down + 16 * r, col = first_col + across + 16 * c;
      if (row >= job.out.rows || col >= job.out.cols) continue;
      auto sum = static_cast<double>(sums[r][c]);
      if (job.bias.data != nullptr) sum += load_value(job.bias, 0, col);
      if (job.activation) sum = activated(*job.activation, sum);
      if (job.residual.data != nullptr) sum += load_value(job.residual, row, col);
      store_value(job.out, row, col, sum);
    }
}

template <typename Real>
void launch(const Exec& exec, const GemmJob& job) {
  const std::int64_t across = (job.out.cols + kSide - 1) / kSide,
                     down = (job.out.rows + kSide - 1) / kSide;
  gemm_general_kernel<Real>
      <<<blocks_for(across * down, 1), kThreads, 0, stream_of(exec)>>>(job, across);
  OCTAVO_CUDA_LAUNCHED("gemm_general_kernel");
}

// Codes dequantized to f32 once, instead of once per tile of the result that reads them. Not for
// operands too large to keep.
class Decoded {
 public:
  Decoded(const Exec& exec, const GemmOperand& operand)
      : decodes_(operand.is_quantized() && operand.rows() <= kMax / operand.cols()),
        memory_(exec,
                decodes_ ? static_cast<std::size_t>(operand.rows() * operand.cols()) * kBytes : 0),
        made_(operand) {
    if (!decodes_) return;
    made_ = {};
    made_.values = {.data = memory_.as<void>(),
                    .dtype = DType::f32,
                    .rows = operand.rows(),
                    .cols = operand.cols(),
                    .row_pitch = operand.cols() * static_cast<std::int64_t>(kBytes),
                    .col_stride = kBytes};
    dequantize_matrix(exec, operand.quantized, made_.values);
  }
  [[nodiscard]] const GemmOperand& operand() const { return made_; }

 private:
  static constexpr std::size_t kBytes = sizeof(float);
  static constexpr std::int64_t kMax = std::int64_t{1} << 28;
  bool decodes_;
  Scratch memory_;
  GemmOperand made_;
};

}  // namespace

bool fits_general(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 || job.accumulator == Accumulator::f64 ||
         job.accumulator == Accumulator::native ||
         job.a.cols() == 0;  // nothing to sum, so any accumulator will do
}

void gemm_general(const Exec& exec, const GemmJob& job) {
  if (job.accumulator == Accumulator::f64 || job.a.cols() == 0) return launch<double>(exec, job);
  const Exec inner = without_workspace(exec);  // operands a and b would share the workspace
  const Decoded a(inner, job.a), b(inner, job.b);
  GemmJob made = job;
  made.a = a.operand();
  made.b = b.operand();
  launch<float>(exec, made);
}

}  // namespace octavo::cuda
