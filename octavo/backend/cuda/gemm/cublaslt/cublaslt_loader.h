// The cuBLASLt functions that GEMM uses, loaded at run time (dlopen, dlsym) from a library that may
// be missing. Only types of its header are used, so nothing is linked.
#pragma once

#include <cublasLt.h>

#include <string>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) describe = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) lay_out = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) prefer = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtGetStatusString) status_text = nullptr;
};

// Null where the library is missing; cublaslt_problem() then gives the reason. The library is
// searched for once, is loaded then, and stays loaded.
[[nodiscard]] const CublasLt* cublaslt();
[[nodiscard]] const std::string& cublaslt_problem();

struct CublasLtHandle {
  cublasLtHandle_t handle = nullptr;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  // the reason if handle is null
};

// The cuBLASLt handle of the Exec's device, which is the current device; one per device. If
// creation fails, the next call tries again, since memory may be free by then. Handles are never
// destroyed: at process exit the driver may be gone before them.
[[nodiscard]] CublasLtHandle cublaslt_handle(const CublasLt& library, const Exec& exec);

}  // namespace octavo::cuda
