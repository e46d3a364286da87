// A product of bf16 by FP4 weights as its kernels take it.
#pragma once

#include "octavo/backend/cuda/gemm/gemm_plan.h"

namespace octavo::cuda {

inline constexpr int kFp4Line = 64;  // of K: 128 bytes of bf16, 32 of codes

// The plan's rows are those of the weights: rows_tensor_map is of bytes of codes, cols_tensor_map
// of bf16.
struct Fp4Plan {
  GemmPlan gemm{};
  // Each unit is cut into so many parts along K, of which the last adds up what others leave. None
  // but one where the schedule deals units out, or the order of sums is promised.
  std::int32_t parts = 1;
  std::int32_t more_of_last = 0;  // blocks of K that the last part has besides its share
  // Scales of blocks of weights; all of a line are read at once.
  const unsigned char* scales = nullptr;
  std::int64_t scale_pitch = 0;
  std::int32_t lines = 0;               // of K
  const float* x_scale = nullptr;       // of all of x
  const float* tensor_scale = nullptr;  // of all weights; may be null
};

// Kernels, by the columns of their tiles, which are rows of x.
inline constexpr int kFp4Cols[] = {32, 64, 128, 256};
// Rows of weights of a cluster, which is a pair of blocks.
inline constexpr int kFp4UnitRows = 256;
// Lines of K in a stage: few columns leave room for more, and the copy engine likes long rows of
// codes.
constexpr int fp4_stage_lines(int cols) { return cols <= 64 ? 4 : cols == 128 ? 2 : 1; }

// gemm_fp4_mx.cu, gemm_fp4_nv.cu
void launch_mxfp4(const Exec& exec, const Fp4Plan& plan, int cols);
void launch_nvfp4(const Exec& exec, const Fp4Plan& plan, int cols);

}  // namespace octavo::cuda
