// The kernel tables of AVX-512, compiled with SIMDe, as backends that every test runs on.
#include "octavo/backend/cpu/isa/avx512/avx512.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi.h"
#include "tests/support/every_backend.h"

namespace octavo::support {
namespace {

[[maybe_unused]] const bool kOffered =
    offer_backend(cpu::kAvx512Kernels) && offer_backend(cpu::kAvx512VbmiKernels);

}  // namespace
}  // namespace octavo::support
