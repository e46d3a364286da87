// A product in the words of cuBLASLt. Rows of octavo's matrices are columns of the library's:
// out^T [N, M] = B [N, K] A^T [K, M], where what the library calls A is octavo's B, transposed, and
// its B is octavo's A as it is. For FP8 that is the one layout there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "octavo/backend/cuda/gemm/cublaslt/cublaslt_loader.h"
#include "octavo/backend/cuda/gemm/cublaslt_table.h"
#include "octavo/backend/gemm_job.h"

namespace octavo::cuda {

// All that the library's choice depends on.
struct CublasLtProblem {
  std::int64_t m = 0, n = 0, k = 0, a_pitch = 0, b_pitch = 0, out_pitch = 0;
  std::int32_t a_type = 0, b_type = 0, out_type = 0, device = 0;
  std::int32_t a_alignment = 0, b_alignment = 0, out_alignment = 0;
  std::int32_t kind = 0;  // twice a GemmKind, and one where alpha is on the device

  bool operator==(const CublasLtProblem&) const = default;
};
static_assert(std::has_unique_object_representations_v<CublasLtProblem>);

// What the library wants to do for a problem, or that it does not want to.
struct CublasLtAlgorithm {
  bool usable = false;
  cublasLtMatmulAlgo_t chosen{};
  std::size_t workspace = 0;
};

struct CublasLtAnswer {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  CublasLtAlgorithm algorithm{};  // usable where that is a success
};

// Whether a status is about the problem, and would be the same the next time; no memory is not.
[[nodiscard]] bool is_about_problem(cublasStatus_t status);

// Of a job that cublaslt_kind() names, for as long as that is there.
class CublasLtCall {
 public:
  CublasLtCall(const CublasLt& library, const Exec& exec, const GemmJob& job, GemmKind kind);

  [[nodiscard]] const CublasLtProblem& problem() const { return problem_; }
  // Sums are multiplied by a number on the device: what queue() is given, with a zero after it.
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
  // Does a step, unless one before it failed.
  template <typename Step>
  void take(Step&& step);

  const CublasLt& library_;
  const GemmJob& job_;
  CublasLtProblem problem_{};
  bool alpha_there_ = false;
  cublasStatus_t status_ =
      CUBLAS_STATUS_SUCCESS;  // of the first thing that the library did not take
  cublasLtMatmulDescOpaque_t description_{};
  cublasLtMatrixLayoutOpaque_t a_{}, b_{}, out_{};
};

}  // namespace octavo::cuda
