// Expands scales to the layout that GEMM kernels read (ScalePlane): f32, one K block after another,
// one scale per row.
#include <algorithm>

#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

__device__ const float kOne = 1.0F;

std::int64_t plane_pitch(std::int64_t rows) { return (rows + 3) / 4 * 4; }

__global__ void __launch_bounds__(kThreads)
    plane_kernel(const __grid_constant__ QuantizedMatrix from, float* to, std::int64_t pitch,
                 std::int64_t tile_rows, std::int64_t tile_cols, std::int64_t block_cols,
                 std::int64_t blocks) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= pitch) return;
  for (std::int64_t block = blockIdx.y; block < blocks; block += gridDim.y)
    to[block * pitch + row] = row < from.codes.rows
                                  ? static_cast<float>(load_value(from.scales, row / tile_rows,
                                                                  block * block_cols / tile_cols))
                                  : 0.0F;
}

__global__ void multiply_kernel(const __grid_constant__ Matrix a, const __grid_constant__ Matrix b,
                                float* to) {
  const auto scale = [](const Matrix& scales) {
    return scales.data == nullptr ? 1.0F : static_cast<float>(load_value(scales, 0, 0));
  };
  to[0] = __fmul_rn(scale(a), scale(b));
  to[1] = 0.0F;
}

}  // namespace

std::int64_t plane_floats(std::int64_t rows, std::int64_t blocks) {
  return plane_pitch(rows) * blocks;
}

void fill_plane(const Exec& exec, const QuantizedMatrix& from, std::int64_t block, float* memory) {
  const std::int64_t rows = from.codes.rows, cols = from.codes.cols,
                     tile_rows = tile_extent(from.tile.rows, rows),
                     tile_cols = tile_extent(from.tile.cols, cols),
                     blocks = tile_cols >= cols ? 1 : (cols + block - 1) / block;
  constexpr std::int64_t kMax = 65535;  // maximum of gridDim.y
  const dim3 grid(blocks_for(plane_pitch(rows), kThreads),
                  static_cast<unsigned>(std::min(blocks, kMax)));
  plane_kernel<<<grid, kThreads, 0, stream_of(exec)>>>(from, memory, plane_pitch(rows), tile_rows,
                                                       tile_cols, block, blocks);
  OCTAVO_CUDA_LAUNCHED("plane_kernel");
}

void multiply_scales(const Exec& exec, const GemmJob& job, float* to) {
  multiply_kernel<<<1, 1, 0, stream_of(exec)>>>(job.a.quantized.scales, job.b.quantized.scales, to);
  OCTAVO_CUDA_LAUNCHED("multiply_kernel");
}

float* scale_of_one() {
  void* there = nullptr;
  OCTAVO_CUDA_CHECK(cudaGetSymbolAddress(&there, kOne));
  return static_cast<float*>(there);
}

}  // namespace octavo::cuda
