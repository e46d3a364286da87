// RAII guard of the floating-point environment (FPCR / MXCSR). Kernels that round with
// floating-point adds need a known environment, and the caller may have set FTZ, DAZ or a rounding
// direction. The guard sets the environment of the kernel and restores the caller's.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace octavo {

enum class FpRounding : std::uint32_t { nearest = 0, up = 1, down = 2, zero = 3 };

class FpEnvGuard {
 public:
  explicit FpEnvGuard(FpRounding rounding = FpRounding::nearest) {
#if defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(saved_)::"memory");
    // All trap, flush and alternative bits off; RMode is bits 23:22, in the order of FpRounding.
    const std::uint64_t wanted = static_cast<std::uint64_t>(rounding) << 22;
    asm volatile("msr fpcr, %0" ::"r"(wanted) : "memory");
#elif defined(__x86_64__)
    saved_ = _mm_getcsr();
    constexpr unsigned kMaskAll = 0x1F80;
    constexpr unsigned kModes[] = {0u << 13, 2u << 13, 1u << 13,
                                   3u << 13};  // nearest, up, down, zero
    _mm_setcsr(kMaskAll | kModes[static_cast<unsigned>(rounding)]);
    asm volatile("" ::: "memory");
#else
#error "octavo runs on aarch64 and x86_64"
#endif
  }
  ~FpEnvGuard() {
#if defined(__aarch64__)
    asm volatile("msr fpcr, %0" ::"r"(saved_) : "memory");
#elif defined(__x86_64__)
    asm volatile("" ::: "memory");
    _mm_setcsr(static_cast<unsigned>(saved_));
#endif
  }
  FpEnvGuard(const FpEnvGuard&) = delete;
  FpEnvGuard& operator=(const FpEnvGuard&) = delete;

 private:
  std::uint64_t saved_;
};

}  // namespace octavo
