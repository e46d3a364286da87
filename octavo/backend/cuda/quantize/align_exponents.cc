// MX exponent alignment of a tensor, to one scale per row or per 128 columns, by the kernels that
// GEMM uses (exponent_alignment.cu).
#include "octavo/backend/align_job.h"

#include "octavo/backend/cuda/quantize/exponent_alignment.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

void align_exponents_matrix(const Exec& exec, const MxAlignJob& job) {
  const Matrix &codes = job.to.codes, &scales = job.to.scales;
  if (codes.rows == 0 || codes.cols == 0) return;
  const Scope scope(exec);
  const AlignJob there{.from = job.from,
                       .codes = static_cast<unsigned char*>(codes.data),
                       .code_pitch = codes.row_pitch,
                       .planes = static_cast<float*>(scales.data),
                       .plane_pitch = scales.col_stride / static_cast<std::int64_t>(sizeof(float)),
                       .changed = reinterpret_cast<unsigned long long*>(job.changed),
                       .vectors = has_aligned_rows(job.from.codes, 16),
                       .whole = has_aligned_rows(codes, 16) && codes.cols % 16 == 0};
  (job.to.tile.cols == kAlignRun ? align_by_columns : align_by_row)(exec, there);
}

}  // namespace octavo::cuda
