// CUDA calls with their errors: what failed, where, and what a user can do about it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "octavo/backend/kernels.h"
#include "octavo/base/fp_env.h"

namespace octavo::cuda {

// Throws Error(device) unless the call went well. `call` is its text.
void check_cuda(cudaError_t status, const char* call, const char* file, int line);
#define OCTAVO_CUDA_CHECK(call) ::octavo::cuda::check_cuda((call), #call, __FILE__, __LINE__)

inline cudaStream_t stream_of(const Exec& exec) { return static_cast<cudaStream_t>(exec.stream); }

// The caller's workspace is for one: what works beside it takes memory elsewhere.
inline Exec without_workspace(Exec exec) {
  exec.workspace = {};
  return exec;
}

// Makes the device of an Exec the current one, and puts back the caller's. Throws when an earlier
// call of the program failed and nobody looked: that error is not ours to swallow, and without this
// it would be taken for ours. The driver computes, too: the floating-point environment is the
// caller's again afterwards.
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

// Where the library's memory on a device comes from.
cudaMemPool_t pool_of(const Exec& exec);

// Memory in the order of the stream: the caller's workspace where that is large enough.
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

// How many blocks cover so many threads' worth of work; throws when there are more than a grid has.
unsigned blocks_for(std::int64_t work, int per_block);

// After a launch.
#define OCTAVO_CUDA_LAUNCHED(name) \
  ::octavo::cuda::check_cuda(cudaGetLastError(), "launch of " name, __FILE__, __LINE__)

}  // namespace octavo::cuda
