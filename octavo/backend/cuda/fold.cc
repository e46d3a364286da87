// MX tensors with one scale a row, or one for 128 columns, by the kernels that products fold with.
#include "octavo/backend/fold_job.h"

#include <algorithm>

#include "octavo/backend/cuda/gemm_fold.h"
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/runtime.h"

namespace octavo::cuda {
namespace {

// Sixteen codes at a time: a row begins at an aligned address.
bool is_aligned(const Matrix& codes) {
  return reinterpret_cast<std::uintptr_t>(codes.data) % 16 == 0 &&
         (codes.rows == 1 || codes.row_pitch % 16 == 0);
}

// A part of the columns.
FoldJob columns_of(FoldJob job, std::int64_t first, std::int64_t count) {
  Matrix &codes = job.from.codes, &scales = job.from.scales;
  codes.data = static_cast<unsigned char*>(codes.data) + first;
  codes.cols = count;
  scales.data =
      static_cast<unsigned char*>(scales.data) + first / octavo::kMxBlock * scales.col_stride;
  scales.cols = tile_count(octavo::kMxBlock, count);
  job.codes += first;
  job.planes += first / kFoldRun * job.plane_pitch;
  return job;
}

}  // namespace

void fold_matrix(const Exec& exec, const MxFoldJob& job) {
  const Matrix &codes = job.to.codes, &scales = job.to.scales;
  if (codes.rows == 0 || codes.cols == 0) return;
  const Scope scope(exec);
  const FoldJob there{.from = job.from,
                      .codes = static_cast<unsigned char*>(codes.data),
                      .code_pitch = codes.row_pitch,
                      .planes = static_cast<float*>(scales.data),
                      .plane_pitch = scales.col_stride / static_cast<std::int64_t>(sizeof(float)),
                      .changed = reinterpret_cast<unsigned long long*>(job.changed),
                      .vectors = is_aligned(job.from.codes),
                      .whole = is_aligned(codes) && codes.cols % 16 == 0};
  if (job.to.tile.cols != kFoldRun) return fold_by_row(exec, there);
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // of columns, in a grid
  for (std::int64_t first = 0; first < codes.cols; first += kMost)
    fold_by_columns(exec, columns_of(there, first, std::min(kMost, codes.cols - first)));
}

}  // namespace octavo::cuda
