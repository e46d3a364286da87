// Numbers of the host to the device as arguments of a kernel: they are part of the launch, so that
// the host's memory may change at once, and part of a graph that captures it.
#include <algorithm>
#include <cstring>

#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr std::size_t kMost = 3072;  // arguments of a kernel have four kilobytes
struct Bytes {
  unsigned char at[kMost];
};

__global__ void upload_kernel(unsigned char* to, const __grid_constant__ Bytes from,
                              unsigned count) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] = from.at[i];
}

}  // namespace

void upload(const Exec& exec, void* to, const void* from, std::size_t bytes) {
  const Scope scope(exec);
  for (std::size_t first = 0; first < bytes; first += kMost) {
    const std::size_t count = std::min(kMost, bytes - first);
    Bytes chunk;
    std::memcpy(chunk.at, static_cast<const unsigned char*>(from) + first, count);
    upload_kernel<<<1, 256, 0, stream_of(exec)>>>(static_cast<unsigned char*>(to) + first, chunk,
                                                  static_cast<unsigned>(count));
    OCTAVO_CUDA_LAUNCHED("upload_kernel");
  }
}

}  // namespace octavo::cuda
