// Products by cuBLASLt, a candidate beside the kernels here. The library is not linked but looked
// for by name when a product wants it first, and where it is not there, too old, or declines, the
// kernels here do the product. Its sums have an order of its own, and so do the bits of its
// results.
#pragma once

#include <optional>
#include <string>

#include "octavo/backend/cuda/gemm/cublaslt_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/backend/gemm_job.h"

namespace octavo::cuda {

// What kind of product it is for the library, if it is one that it might do: of bf16 or f16 with
// one scale for each operand or none, of FP8 with one scale or one for each row; one product, of
// aligned rows, with nothing after the sum. Elements of 16 bits may stand in the place of codes, as
// gemm_bf16.cc has them.
[[nodiscard]] std::optional<GemmKind> cublaslt_kind(const GemmJob& job);

// Why the library cannot be used in this process; empty where it can.
[[nodiscard]] const std::string& gemm_cublaslt_problem();

// Queues the product, whatever the accumulator and the type of the result; false: it declines, and
// nothing was queued.
bool gemm_cublaslt(const Exec& exec, const GemmJob& job);

// The same where the library is to do it: sums that may have any order (native, and none of
// several products), a result of 16 bits, and OCTAVO_CUDA_LIBRARY_GEMM or else the table. Results
// in f32 stay with the kernels here, where a row has the same bits in a strip of a product as in
// the whole: gemm_quantized promises the bytes of a product that is quantized at once.
bool gemm_cublaslt_if_chosen(const Exec& exec, const GemmJob& job);

// For tests and benches, before the environment and the table: whether the library does what it can
// do. Returns what it was.
std::optional<bool> force_cublaslt(std::optional<bool> wanted);

}  // namespace octavo::cuda
