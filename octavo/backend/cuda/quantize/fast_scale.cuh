// One amax to one scale in a few instructions: tile_scale.h for the cases that FastScale covers.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/backend/cuda/device/hardware_cvt.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.h"
#include "octavo/scale/scale_parts.h"

namespace octavo::cuda {

struct MadeScale {
  std::uint32_t bits;  // as stored
  float factor;        // u = x * factor
  bool poisoned;
};

__device__ __forceinline__ float decoded_e4m3(std::uint32_t code) {
  const auto pair = static_cast<std::uint16_t>(code);
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(halves)));
}

// `amax` as f32 bits, without NaN where the scale drops it; `tensor_scale` is used by two-level
// scales.
template <FastKind kKind>
__device__ __forceinline__ MadeScale fast_tile_scale(const FastScale& scale, std::uint32_t amax,
                                                     float tensor_scale = 1.0F) {
  constexpr std::uint32_t kInfinity = 0x7F800000u;
  MadeScale made{0u, 1.0F, amax >= kInfinity && !scale.drops_nan};
  if constexpr (kKind == FastKind::e8m0 || kKind == FastKind::power_f32) {
    // A tile of zeros gets the smallest scale, too; in e8m0 that is byte 0.
    const int least = kKind == FastKind::e8m0 ? 0 : 1;
    const int exponent = static_cast<int>((amax + scale.carry) >> 23);
    const int byte = max(exponent - scale.top_exponent, least);
    made.factor = __uint_as_float(static_cast<unsigned>(254 - byte) << 23);
    made.bits = static_cast<unsigned>(byte);
    if constexpr (kKind == FastKind::e8m0) {
      if (amax == scale.te_zero_scale_amax) {
        made.bits = 0u;
        made.factor = 0x1p127F;
      }
      if (amax >= kInfinity) {
        made.bits = scale.infinite_bits;
        made.factor = __uint_as_float(scale.infinite_factor);
      }
    } else {
      made.bits <<= 23;
      if (amax == 0u) made.bits = 0x3F800000u;
      if (made.poisoned) made.bits = 0x7FC00000u;
    }
  } else if constexpr (kKind == FastKind::inverse) {
    if (amax != 0u && amax < kInfinity) {
      const float wanted = scale.max / __uint_as_float(amax);
      made.factor = __uint_as_float(__float_as_uint(wanted <= kMaxFloat ? wanted : scale.largest) &
                                    scale.kept_bits);
    }
    made.bits = __float_as_uint(1.0F / made.factor);
  } else if constexpr (kKind == FastKind::quotient) {
    const float wanted = clamped_scale(__uint_as_float(amax) / scale.max * scale.margin);
    made.factor = amax == 0u ? 1.0F : reciprocal(wanted);
    made.bits = amax == 0u ? 0x3F800000u : __float_as_uint(wanted);
    if (made.poisoned) made.bits = 0x7FC00000u;
  } else {
    const float wanted = __uint_as_float(amax) / scale.max / tensor_scale * scale.margin;
    const std::uint32_t code = max(hardware_pair<false>(wanted, 0.0F), 1u);
    made.factor = amax == 0u ? 1.0F : reciprocal(decoded_e4m3(code) * tensor_scale);
    made.bits = amax == 0u ? 0x38u : code;  // one
    if (made.poisoned) made.bits = 0x7Fu;
  }
  return made;
}

}  // namespace octavo::cuda
