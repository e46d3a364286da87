// GEMM by cuBLASLt, as an alternative to octavo's kernels. The library is not linked but loaded at
// run time on the first GEMM that could use it; where it is missing, too old, or declines, octavo's
// kernels run. Its order of sums is its own, and so are the bits of its results.
#pragma once

#include <optional>
#include <string>

#include "octavo/backend/cuda/gemm/cublaslt_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/backend/gemm_job.h"

namespace octavo::cuda {

// The kind of a GEMM that cuBLASLt could do, if it is one: bf16 or f16 with a per-tensor scale for
// each operand or none, FP8 with per-tensor or per-row scales; a single product of aligned rows
// with no epilogue. 16-bit elements may stand in place of codes, as gemm_bf16.cc passes them.
[[nodiscard]] std::optional<GemmKind> cublaslt_kind(const GemmJob& job);

// Why cuBLASLt cannot be used in this process; empty if it can.
[[nodiscard]] const std::string& gemm_cublaslt_problem();

// Queues the GEMM, whatever the accumulator and the output type. False: cuBLASLt declines, and
// nothing was queued.
bool gemm_cublaslt(const Exec& exec, const GemmJob& job);

// The same if cuBLASLt is chosen: any order of sums is allowed (accumulator native, not a group),
// the output has 16 bits, and OCTAVO_CUDA_LIBRARY_GEMM or else the table says so. f32 results stay
// with octavo's kernels, where a row has the same bits in a row block of a product as in the whole:
// gemm_quantized promises the bytes of one unsplit quantized product.
bool gemm_cublaslt_if_chosen(const Exec& exec, const GemmJob& job);

// For tests and benches; takes precedence over the environment and the table: whether cuBLASLt does
// what it can do. Returns the previous setting.
std::optional<bool> force_cublaslt(std::optional<bool> wanted);

}  // namespace octavo::cuda
