// What the stand-in for cuBLASLt was asked, and what it shall answer.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace octavo::testing {

struct FakeCublasLt {
  int asked = 0, queued = 0;
  cublasStatus_t handle = CUBLAS_STATUS_SUCCESS;  // of making one
  cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;  // to the question for an algorithm
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  // of a product

  // Of the last question, and of the last product.
  std::uint64_t most_workspace = 0;
  std::uint32_t reductions = 0, a_alignment = 0, b_alignment = 0, d_alignment = 0;
  int fast_accumulation = -1;  // -1: nobody said
  int a_scale_mode = -1;
};

}  // namespace octavo::testing
