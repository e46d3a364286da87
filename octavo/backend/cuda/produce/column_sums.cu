// Column sums (bias gradient), in the order that kernels.h defines: a thread sums kColumnRun rows
// of a column, and the sums of all runs are the rows of the next launch, until one run is left.
// Threads of a warp read neighbouring columns: dense rows are read at memory speed, others more
// slowly.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256, kAtOnce = 16;  // loads in flight per thread

template <typename Real, typename Value>
__device__ __forceinline__ Real number_of(Value value) {
  return static_cast<Real>(static_cast<float>(value));
}
template <>
__device__ __forceinline__ double number_of<double, double>(double value) {
  return value;
}

// Where the sum of a run is stored: among the other runs, or, if it is the only one, in the result.
struct SumsTo {
  void* runs = nullptr;  // of the accumulator type, [runs][columns]; null: the result
  Matrix before{}, result{};
};

template <typename Real, typename Value>
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(const __grid_constant__ Matrix values, const __grid_constant__ SumsTo to,
                       std::int64_t sums) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= sums) return;
  const std::int64_t run = at / values.cols, col = at % values.cols, first = run * kColumnRun;
  const std::int64_t rows = min(kColumnRun, values.rows - first);
  const unsigned char* from = element(values, first, col);
  Real sum{0};
  std::int64_t row = 0;
  for (; row + kAtOnce <= rows; row += kAtOnce) {
    Value ahead[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, from += values.row_pitch) ahead[i] = load<Value>(from);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum += number_of<Real>(ahead[i]);
  }
  for (; row < rows; ++row, from += values.row_pitch) sum += number_of<Real>(load<Value>(from));
  if (to.runs != nullptr) {
    static_cast<Real*>(to.runs)[at] = sum;
    return;
  }
  auto result = static_cast<double>(sum);
  if (to.before.data != nullptr) result += load_value(to.before, 0, col);
  store_value(to.result, 0, col, result);
}

template <typename Real>
void launch(const Exec& exec, const Matrix& values, const SumsTo& to, std::int64_t runs) {
  const std::int64_t sums = runs * values.cols;
  const auto start = [&](auto kernel) {
    kernel<<<blocks_for(sums, kThreads), kThreads, 0, stream_of(exec)>>>(values, to, sums);
  };
  if constexpr (sizeof(Real) == sizeof(double)) {
    if (values.dtype == DType::f64) start(column_sums_kernel<Real, double>);
  }
  if (values.dtype == DType::f32) start(column_sums_kernel<Real, float>);
  if (values.dtype == DType::f16) start(column_sums_kernel<Real, __half>);
  if (values.dtype == DType::bf16) start(column_sums_kernel<Real, __nv_bfloat16>);
  OCTAVO_CUDA_LAUNCHED("column_sums_kernel");
}

constexpr std::int64_t runs_of(std::int64_t rows) {
  return rows == 0 ? 1 : (rows + kColumnRun - 1) / kColumnRun;  // no rows: a zero
}

Matrix runs_as_rows(void* sums, bool is_f64, std::int64_t runs, std::int64_t cols) {
  const std::int64_t bytes = is_f64 ? sizeof(double) : sizeof(float);
  return {.data = sums,
          .dtype = is_f64 ? DType::f64 : DType::f32,
          .rows = runs,
          .cols = cols,
          .row_pitch = cols * bytes,
          .col_stride = bytes};
}

template <typename Real>
void add_columns(const Exec& exec, Matrix values, const SumsTo& to) {
  std::int64_t numbers = 0;
  for (std::int64_t runs = runs_of(values.rows); runs > 1; runs = runs_of(runs))
    numbers += runs * values.cols;
  const Scratch memory(exec, static_cast<std::size_t>(numbers) * sizeof(Real));
  auto* sums = memory.as<Real>();
  for (std::int64_t runs = runs_of(values.rows); runs > 1; runs = runs_of(runs)) {
    SumsTo among;
    among.runs = sums;
    launch<Real>(exec, values, among, runs);
    values = runs_as_rows(sums, sizeof(Real) == sizeof(double), runs, values.cols);
    sums += runs * values.cols;
  }
  launch<Real>(exec, values, to, 1);
}

}  // namespace

void column_sums(const Exec& exec, const Matrix& values, const Matrix& before, const Matrix& sums) {
  const Scope scope(exec);
  if (values.cols == 0) return;
  const SumsTo to{.before = before, .result = sums};
  if (values.dtype == DType::f64 || sums.dtype == DType::f64)
    add_columns<double>(exec, values, to);
  else
    add_columns<float>(exec, values, to);
}

}  // namespace octavo::cuda
