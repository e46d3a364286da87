// cuBLASLt as far as products use it: functions that are found by name in a library that may not be
// there. Of its header only types are used, so nothing has to be linked.
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

// Null where the library is not there; cublaslt_problem() then says why. It is looked for once, is
// loaded then, and stays loaded.
[[nodiscard]] const CublasLt* cublaslt();
[[nodiscard]] const std::string& cublaslt_problem();

struct CublasLtHandle {
  cublasLtHandle_t handle = nullptr;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  // why there is none
};

// The one handle of the device of an Exec, which is the current one. Where the library makes none
// it is asked again the next time, when there may be memory for it. Handles live as long as the
// process: at its end the driver may be gone before them.
[[nodiscard]] CublasLtHandle cublaslt_handle(const CublasLt& library, const Exec& exec);

}  // namespace octavo::cuda
