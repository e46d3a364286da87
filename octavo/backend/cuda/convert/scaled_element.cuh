// Elements of scaled conversions: the factor of an element, products to odd for an encode, and
// products or quotients rounded once to the type of a decode.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/convert/decode_element.cuh"
#include "octavo/backend/factors.h"
#include "octavo/tensor/dtype.h"

namespace octavo::cuda {

__device__ __forceinline__ double factor_at(const Matrix& each, std::int64_t row,
                                            std::int64_t col) {
  const auto* from =
      static_cast<const unsigned char*>(each.data) + row * each.row_pitch + col * each.col_stride;
  if (each.dtype == DType::f64) return *reinterpret_cast<const double*>(from);
  return *reinterpret_cast<const float*>(from);
}

// The one factor of a call. `writes`: of all threads, the one that writes a dynamic factor.
__device__ __forceinline__ double one_factor(const Factors& factors, double largest, bool writes) {
  if (factors.amax == nullptr) return factors.value;
  const double made = dynamic_factor(*factors.amax, largest, factors.rule);
  if (writes && factors.made != nullptr) *factors.made = made;
  return made;
}

__device__ __forceinline__ bool is_f32(double factor) {
  return static_cast<double>(static_cast<float>(factor)) == factor;
}
__device__ __forceinline__ bool is_nan_bits(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

// Cut off to f32, with the last bit set where anything was cut off. The rest of a product below
// 2^-100 is lost, where formats are coarser. NaN keeps its sign.
__device__ __forceinline__ std::uint32_t product_f32_odd(std::uint32_t bits, float factor) {
  const float value = __uint_as_float(bits), product = __fmul_rz(value, factor);
  const float rest = __fmaf_rz(value, factor, -product);
  const std::uint32_t odd = __float_as_uint(product) | (fabsf(rest) > 0.0F ? 1u : 0u);
  return is_nan_bits(bits) ? bits : odd;
}

// The same of a double, `inexact` where it is cut off already. Magnitudes below 2^-126 become that,
// other than zero (`zero`: the exact one).
__device__ __forceinline__ std::uint32_t narrowed_odd(double value, bool inexact, bool zero) {
  const std::uint32_t bits = __float_as_uint(__double2float_rz(value));
  const bool rest =
      inexact || (static_cast<std::uint32_t>(__double2loint(value)) & 0x1FFFFFFFu) != 0;
  const std::uint32_t size = bits & 0x7FFFFFFFu;
  const std::uint32_t odd = size < 0x7F800000u && rest ? size | 1u : size;
  return (bits & 0x80000000u) | max(odd, zero ? 0u : 0x00800000u);
}

__device__ __forceinline__ std::uint32_t product_f64_odd(std::uint32_t bits, double factor) {
  const double value = __uint_as_float(bits), product = __dmul_rz(value, factor);
  const double rest = __fma_rz(value, factor, -product);
  const std::uint32_t odd = narrowed_odd(product, fabs(rest) > 0.0, value == 0.0 || factor == 0.0);
  return is_nan_bits(bits) ? bits : odd;
}

// Bits of f32, whose upper half is the value where the target is bf16; f16 in the lower half.
template <DType kTarget>
__device__ __forceinline__ std::uint32_t scaled_value(std::uint32_t bits, double factor,
                                                      bool divide) {
  std::uint32_t out;
  if (is_nan_bits(bits)) {
    out = bits;
    return kTarget == DType::f16 ? narrowed_to_f16(out) : out;
  }
  const double value = __uint_as_float(bits);
  const double product = divide ? __ddiv_rn(value, factor) : __dmul_rz(value, factor);
  const bool inexact = !divide && fabs(__fma_rz(value, factor, -product)) > 0.0;
  if constexpr (kTarget == DType::f32) {
    const double odd = inexact ? __longlong_as_double(__double_as_longlong(product) | 1) : product;
    return __float_as_uint(__double2float_rn(odd));
  } else {
    if (product != product) {
      out = kQuietNan;
    } else if (kTarget == DType::bf16 && fabs(product) < 0x1p-126) {
      // Among the subnormals of bf16: rounded by a sum to multiples of 2^-133.
      constexpr double kGrid = 0x1.8p-81;
      const double odd =
          inexact ? __longlong_as_double(__double_as_longlong(product) | 1) : product;
      const double rounded = __dadd_rn(__dadd_rn(fabs(odd), kGrid), -kGrid);
      return __float_as_uint(static_cast<float>(rounded)) |
             (static_cast<std::uint32_t>(__double2hiint(product)) & 0x80000000u);
    } else {
      out = narrowed_odd(product, inexact, product == 0.0 && !inexact);
    }
    return kTarget == DType::f16 ? narrowed_to_f16(out) : narrowed_to_bf16(out);
  }
}

}  // namespace octavo::cuda
