// One GEMM as a cublasLtMatmul call. cuBLASLt is column-major, so rows of octavo's matrices are its
// columns: out^T [N, M] = B [N, K] A^T [K, M]. cuBLASLt's A is octavo's B, transposed, and its B is
// octavo's A, not transposed. For FP8 this TN layout is the only one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "octavo/backend/cuda/gemm/cublaslt/cublaslt_loader.h"
#include "octavo/backend/cuda/gemm/cublaslt_table.h"
#include "octavo/backend/gemm_job.h"

namespace octavo::cuda {

// The key of the heuristic cache: everything that the heuristic's choice depends on.
struct CublasLtProblem {
  std::int64_t m = 0, n = 0, k = 0, a_pitch = 0, b_pitch = 0, out_pitch = 0;
  std::int32_t a_type = 0, b_type = 0, out_type = 0, device = 0;
  std::int32_t a_alignment = 0, b_alignment = 0, out_alignment = 0;
  std::int32_t kind = 0;  // 2 * GemmKind, + 1 if alpha is in device memory

  bool operator==(const CublasLtProblem&) const = default;
};
static_assert(std::has_unique_object_representations_v<CublasLtProblem>);

// The algorithm that the heuristic chose, or that it has none.
struct CublasLtAlgorithm {
  bool usable = false;
  cublasLtMatmulAlgo_t chosen{};
  std::size_t workspace = 0;
};

struct CublasLtAnswer {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  CublasLtAlgorithm algorithm{};  // usable if status is a success
};

// Whether a status depends on the problem alone, so that it may be cached; out-of-memory does not.
[[nodiscard]] bool is_about_problem(cublasStatus_t status);

// The call for a job that cublaslt_kind() accepts. The job must outlive it.
class CublasLtCall {
 public:
  CublasLtCall(const CublasLt& library, const Exec& exec, const GemmJob& job, GemmKind kind);

  [[nodiscard]] const CublasLtProblem& problem() const { return problem_; }
  // Whether alpha is a device pointer: queue() is given alpha and a zero (beta) after it.
  [[nodiscard]] bool scales_by_alpha() const { return alpha_there_; }

  [[nodiscard]] CublasLtAnswer ask(cublasLtHandle_t handle);
  [[nodiscard]] cublasStatus_t queue(const Exec& exec, cublasLtHandle_t handle,
                                     const CublasLtAlgorithm& algorithm, void* workspace,
                                     const float* alpha_and_zero);

 private:
  void lay_out(cublasLtMatrixLayoutOpaque_t& to, std::int32_t type, std::int64_t rows,
               std::int64_t cols, std::int64_t pitch);
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value);
  void describe(GemmKind kind, bool is_16_bits);
  // Runs a step unless an earlier one failed.
  template <typename Step>
  void take(Step&& step);

  const CublasLt& library_;
  const GemmJob& job_;
  CublasLtProblem problem_{};
  bool alpha_there_ = false;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;  // of the first call that failed
  cublasLtMatmulDescOpaque_t description_{};
  cublasLtMatrixLayoutOpaque_t a_{}, b_{}, out_{};
};

}  // namespace octavo::cuda
