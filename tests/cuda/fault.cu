#include "tests/cuda/fault.h"

namespace octavo::support {
namespace {

__global__ void write(int* nowhere) { *nowhere = 1; }

}  // namespace

void write_to_nowhere(cudaStream_t stream) {
  write<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(16));
}

}  // namespace octavo::support
