// Kernel arguments of a GEMM of bf16 by FP4 weights (tiles, wgmma).
#pragma once

#include "octavo/backend/cuda/gemm/gemm_plan.h"

namespace octavo::cuda {

inline constexpr int kFp4Line = 64;  // of K: 128 bytes of bf16, 32 bytes of codes

// Swap-AB: the plan's rows are rows of the weights. rows_tensor_map is over bytes of codes,
// cols_tensor_map over bf16.
struct Fp4Plan {
  GemmPlan gemm{};
  // Split-K: each unit is split into this many parts along K, and the last part adds up the partial
  // sums of the others. 1 where the schedule uses stream-K, or where the order of sums is promised.
  std::int32_t parts = 1;
  std::int32_t more_of_last = 0;  // K blocks that the last part has beyond an even split
  // Block scales of the weights; all scales of a line are read in one load.
  const unsigned char* scales = nullptr;
  std::int64_t scale_pitch = 0;
  std::int32_t lines = 0;               // along K
  const float* x_scale = nullptr;       // per-tensor scale of x
  const float* tensor_scale = nullptr;  // per-tensor scale of the weights; may be null
};

// Tile widths that have kernels; a tile's columns are rows of x.
inline constexpr int kFp4Cols[] = {32, 64, 128, 256};
// Rows of weights per cluster of two blocks.
inline constexpr int kFp4UnitRows = 256;
// Lines of K per stage: narrow tiles leave room for more, and TMA is faster with long rows of
// codes.
constexpr int fp4_stage_lines(int cols) { return cols <= 64 ? 4 : cols == 128 ? 2 : 1; }

// gemm_fp4_mx.cu and gemm_fp4_nv.cu.
void launch_mxfp4(const Exec& exec, const Fp4Plan& plan, int cols);
void launch_nvfp4(const Exec& exec, const Fp4Plan& plan, int cols);

}  // namespace octavo::cuda
