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

// The one handle of the device of an Exec, which is the current one; null where the library makes
// none. Handles live as long as the process: at its end the driver may be gone before them.
[[nodiscard]] cublasLtHandle_t cublaslt_handle(const CublasLt& library, const Exec& exec);

}  // namespace octavo::cuda
