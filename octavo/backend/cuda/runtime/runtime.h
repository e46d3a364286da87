// CUDA runtime helpers: checked calls with an error message that names the call, its place and a
// fix; device scope, scratch memory, grid sizes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "octavo/backend/kernels.h"
#include "octavo/base/fp_env.h"

namespace octavo::cuda {

// Throws Error(device) unless the call succeeded. `call` is its text.
void check_cuda(cudaError_t status, const char* call, const char* file, int line);
#define OCTAVO_CUDA_CHECK(call) ::octavo::cuda::check_cuda((call), #call, __FILE__, __LINE__)

inline cudaStream_t stream_of(const Exec& exec) { return static_cast<cudaStream_t>(exec.stream); }

// The caller's workspace serves one allocation: a nested call allocates elsewhere.
inline Exec without_workspace(Exec exec) {
  exec.workspace = {};
  return exec;
}

// Makes the Exec's device current, and restores the caller's. Throws if an earlier CUDA call of the
// program failed and its error is still pending: that error is not octavo's to clear, and would be
// reported as octavo's. Also restores the caller's floating-point environment, which the driver may
// change.
class Scope {
 public:
  explicit Scope(const Exec& exec);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  FpEnvGuard guard_;
  int before_ = 0;
  int device_ = 0;
};

// octavo's memory pool on a device.
cudaMemPool_t pool_of(const Exec& exec);

// Stream-ordered scratch memory: the caller's workspace if that is large enough.
class Scratch {
 public:
  Scratch(const Exec& exec, std::size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(memory_);
  }
  void clear() const;

 private:
  cudaStream_t stream_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  bool owned_ = false;
};

// As DeviceApi::upload; in upload.cu.
void upload(const Exec& exec, void* to, const void* from, std::size_t bytes);

// Number of thread blocks for `work` items; throws if it exceeds a grid's limit.
unsigned blocks_for(std::int64_t work, int per_block);

// To be called after a kernel launch.
#define OCTAVO_CUDA_LAUNCHED(name) \
  ::octavo::cuda::check_cuda(cudaGetLastError(), "launch of " name, __FILE__, __LINE__)

}  // namespace octavo::cuda
