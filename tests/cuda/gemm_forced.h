// Forces octavo's kernels or cuBLASLt for GEMM during a test.
#pragma once

#include <optional>

#include "octavo/backend/cuda/gemm/gemm_cublaslt.h"
#include "tests/cuda/device_memory.h"

namespace octavo::testing {

class ForcedLibrary {
 public:
  explicit ForcedLibrary(bool wanted) : before_(cuda::force_cublaslt(wanted)) {}
  ~ForcedLibrary() { (void)cuda::force_cublaslt(before_); }
  ForcedLibrary(const ForcedLibrary&) = delete;
  ForcedLibrary& operator=(const ForcedLibrary&) = delete;

 private:
  std::optional<bool> before_;
};

struct OwnKernels : ForcedLibrary {
  OwnKernels() : ForcedLibrary(false) {}
};

}  // namespace octavo::testing
