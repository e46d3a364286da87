// The kernel tables of AVX-512 and AMX, compiled with SIMDe, as backends that every test runs on.
// Calls that name no backend run on the one that OCTAVO_TEST_BACKEND names.
#include <cstdlib>
#include <string_view>

#include "octavo/backend/cpu/isa/amx/amx.h"
#include "octavo/backend/cpu/isa/avx512/avx512.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi.h"
#include "octavo/backend/registry_testing_internal.h"
#include "tests/support/every_backend.h"

namespace octavo::support {
namespace {

[[maybe_unused]] const bool kOffered = [] {
  const char* const only = std::getenv("OCTAVO_TEST_BACKEND");
  for (const Kernels* kernels :
       {&cpu::kAvx512Kernels, &cpu::kAvx512VbmiKernels, &cpu::kAmxKernels}) {
    offer_backend(*kernels);
    if (only != nullptr && std::string_view(only) == kernels->name)
      octavo::testing::set_cpu_backend(kernels);
  }
  return true;
}();

}  // namespace
}  // namespace octavo::support
