#include "tests/support/every_backend.h"

#include <algorithm>
#include <cstdlib>

#include "octavo/backend/cuda.h"
#include "octavo/base/error.h"
#include "tests/support/staged_kernels.h"

namespace octavo::support {
namespace {

const DeviceApi& cuda_device() { return device_api({DeviceKind::cuda, 0}); }

const Kernels* staged_cuda() {
  static const bool kUsable = cuda::device_problem(0).empty();
  if (!kUsable) return nullptr;
  static const Kernels kTable = StagedKernels<&cuda_device>::table("cuda (staged)");
  return &kTable;
}

// A function's variable: offers come from initialisers of other files.
std::vector<const Kernels*>& offered() {
  static std::vector<const Kernels*> tables;
  return tables;
}

}  // namespace

bool offer_backend(const Kernels& kernels) {
  offered().push_back(&kernels);
  return true;
}

std::vector<BackendInfo> every_backend() {
  std::vector<BackendInfo> all = backends();
  std::erase_if(all, [](const BackendInfo& info) { return !info.usable; });
  for (const Kernels* own : offered())
    all.push_back({.kernels = own, .name = own->name, .usable = true, .reason = "a test has it"});
  if (const Kernels* cuda = staged_cuda()) {
    all.push_back({.kernels = cuda, .name = cuda->name, .usable = true, .reason = cuda::summary()});
  }
  if (const char* const only = std::getenv("OCTAVO_TEST_BACKEND")) {
    const auto has_that_name = [&](const BackendInfo& info) { return info.name == only; };
    const bool one = std::ranges::any_of(all, has_that_name);
    std::erase_if(all, [&](const BackendInfo& info) {
      return one ? !has_that_name(info) : info.name.find(only) == std::string::npos;
    });
    check(!all.empty(), ErrorCode::unsupported, "test", "OCTAVO_TEST_BACKEND is '", only,
          "', and no backend that runs here has that in its name");
  }
  return all;
}

bool is_staged(const BackendInfo& backend) { return backend.kernels == staged_cuda(); }

}  // namespace octavo::support
