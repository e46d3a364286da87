// The fake cuBLASLt: what it was asked, and the statuses that it returns.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace octavo::testing {

struct FakeCublasLt {
  int asked = 0, queued = 0;
  cublasStatus_t handle = CUBLAS_STATUS_SUCCESS;  // of cublasLtCreate
  cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;  // of the heuristic
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  // of cublasLtMatmul

  // Of the last heuristic query, and of the last product.
  std::uint64_t most_workspace = 0;
  std::uint32_t reductions = 0, a_alignment = 0, b_alignment = 0, d_alignment = 0;
  int fast_accumulation = -1;  // -1: not set
  int a_scale_mode = -1;
};

}  // namespace octavo::testing
