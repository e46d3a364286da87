// Linked when octavo is built without CUDA: every entry reports that.
#include "octavo/backend/cuda.h"

namespace octavo::cuda {

const DeviceApi* api() { return nullptr; }

std::string device_problem(int) {
  return "octavo was built without CUDA; build it with `make cuda` (needs the CUDA toolkit, 13 or "
         "later), or copy the tensor to the CPU";
}

std::string summary() { return "built without CUDA (`make cuda` builds with it)"; }

}  // namespace octavo::cuda
