// Decodes two FP8 codes to bf16, which holds all their values, Inf and NaN: by the hardware's
// conversion to f16, then to f32, whose upper half is the bf16.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>

#include "octavo/base/macros.h"

namespace octavo::cuda {

// The codes are the lower two bytes of `codes`, in memory order. The result has the first one in
// its lower half.
template <bool kE5m2>
OCTAVO_HD inline std::uint32_t decoded_fp8(std::uint32_t codes) {
  const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes),
                                                        kE5m2 ? __NV_E5M2 : __NV_E4M3);
  const float2 both = __half22float2(__half2(halves));
  std::uint32_t first = 0, second = 0;
  std::memcpy(&first, &both.x, sizeof(first));
  std::memcpy(&second, &both.y, sizeof(second));
#if defined(__CUDA_ARCH__)
  return __byte_perm(first, second, 0x7632);  // one instruction for the expression below
#else
  return first >> 16 | (second & 0xFFFF0000u);
#endif
}

}  // namespace octavo::cuda
