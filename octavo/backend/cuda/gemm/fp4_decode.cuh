// Decodes FP4 (e2m1) codes with block scales (e8m0 or e4m3) to bf16, exactly.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace octavo::cuda {

// A block scale as bf16 bits: e4m3 for NVFP4, e8m0 for MX.
template <bool kNvfp4>
__device__ __forceinline__ unsigned block_scale_bits(unsigned byte) {
  if constexpr (kNvfp4) {
    const __half_raw half =
        __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(byte), __NV_E4M3);
    return __bfloat16_as_ushort(__float2bfloat16_rn(__half2float(__half(half))));
  } else {
    return byte == 0xFFu ? 0x7FC0u : byte == 0u ? 0x0040u : byte << 7;
  }
}

// Decodes two codes. `bits` has each code's sign at bf16's sign and its three other bits at the
// lowest exponent bits and the highest fraction bit: bf16 reads that as 2^-126 times the value,
// subnormals included.
__device__ __forceinline__ __nv_bfloat162 decoded_e2m1(unsigned bits) {
  constexpr unsigned kUp = 0x7E807E80u;  // 2^126, twice
  return __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits),
                 *reinterpret_cast<const __nv_bfloat162*>(&kUp));
}

// The same, times their scales.
__device__ __forceinline__ unsigned scaled_e2m1(unsigned bits, __nv_bfloat162 scale) {
  const __nv_bfloat162 product = __hmul2(decoded_e2m1(bits), scale);
  return *reinterpret_cast<const unsigned*>(&product);
}

}  // namespace octavo::cuda
