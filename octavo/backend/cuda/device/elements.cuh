// Loads and stores of single elements, of any type, strides and packing: in f64 for the general
// kernels, in f32 for GEMM epilogues.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/backend/kernels.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/round/stochastic.h"

namespace octavo::cuda {

__device__ inline const unsigned char* element(const Matrix& matrix, std::int64_t row,
                                               std::int64_t col) {
  return static_cast<const unsigned char*>(matrix.data) + row * matrix.row_pitch +
         col * matrix.col_stride;
}
__device__ inline unsigned char* element_to(const Matrix& matrix, std::int64_t row,
                                            std::int64_t col) {
  return const_cast<unsigned char*>(element(matrix, row, col));
}
template <typename T>
__device__ T load(const unsigned char* from) {
  return *reinterpret_cast<const T*>(from);
}
template <typename T>
__device__ void store(unsigned char* to, T value) {
  *reinterpret_cast<T*>(to) = value;
}

__device__ inline unsigned char* row_start(const Matrix& matrix, std::int64_t row) {
  return static_cast<unsigned char*>(matrix.data) + row * matrix.row_pitch;
}

__device__ inline std::uint32_t load_code(const Matrix& codes, std::int64_t row, std::int64_t col) {
  if (!codes.packed) {
    const unsigned char* from = element(codes, row, col);
    return codes.format.code_bytes() == 1 ? load<std::uint8_t>(from) : load<std::uint16_t>(from);
  }
  const int bits = codes.format.bits();
  const std::int64_t at = col * bits;
  const unsigned char* from = row_start(codes, row) + at / 8;
  const int shift = static_cast<int>(at % 8);
  std::uint32_t window = from[0];
  if (shift + bits > 8) window |= static_cast<std::uint32_t>(from[1]) << 8;  // bits <= 8
  return window >> shift & codes.format.code_mask();
}

// Codes of a row from `col` on; col is a multiple of 8 where codes are packed, so that a group of
// eight starts on a byte and no two threads write into one byte.
inline constexpr int kPackedGroup = 8;
__device__ inline void store_packed(const Matrix& codes, std::int64_t row, std::int64_t col,
                                    const std::uint32_t (&group)[kPackedGroup], int n) {
  const int bits = codes.format.bits();
  unsigned char* to = row_start(codes, row) + col / 8 * bits;
  std::uint64_t window = 0;
  for (int i = 0; i < n; ++i) window |= static_cast<std::uint64_t>(group[i]) << (i * bits);
  for (int byte = 0; byte < (n * bits + 7) / 8; ++byte)
    to[byte] = static_cast<unsigned char>(window >> (8 * byte));
}
__device__ inline void store_code(const Matrix& codes, std::int64_t row, std::int64_t col,
                                  std::uint32_t code) {
  unsigned char* to = element_to(codes, row, col);
  if (codes.format.code_bytes() == 1) return store(to, static_cast<std::uint8_t>(code));
  store(to, static_cast<std::uint16_t>(code));
}

__device__ inline double load_value(const Matrix& values, std::int64_t row, std::int64_t col) {
  if (values.dtype == DType::code) return decode(values.format, load_code(values, row, col));
  const unsigned char* from = element(values, row, col);
  switch (values.dtype) {
    case DType::f64:
      return load<double>(from);
    case DType::f32:
      return load<float>(from);
    case DType::f16:
      return decode<f16_format>(load<std::uint16_t>(from));
    default:
      return __uint_as_float(static_cast<std::uint32_t>(load<std::uint16_t>(from)) << 16);
  }
}

__device__ inline void store_value(const Matrix& values, std::int64_t row, std::int64_t col,
                                   double value) {
  unsigned char* to = element_to(values, row, col);
  constexpr Format kF16 = f16_format, kBf16 = bf16_format;  // device code cannot use global objects
  constexpr EncodePolicy kRoundOnce{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  switch (values.dtype) {
    case DType::f64:
      return store(to, value);
    case DType::f32: {
      const auto narrow = static_cast<float>(value);
      // The conversion loses the sign of NaN.
      const auto high = static_cast<std::uint32_t>(__double2hiint(value));
      return store(to,
                   narrow == narrow ? __float_as_uint(narrow) : (high & 0x80000000u) | 0x7FC00000u);
    }
    case DType::f16:
      return store(to, static_cast<std::uint16_t>(encode_value(kF16, value, kRoundOnce).code));
    default:
      return store(to, static_cast<std::uint16_t>(encode_value(kBf16, value, kRoundOnce).code));
  }
}

// Values, not codes, in f32; which NaN a NaN becomes is unspecified.
__device__ __forceinline__ float load_float(const Matrix& values, std::int64_t row,
                                            std::int64_t col) {
  const unsigned char* from = element(values, row, col);
  switch (values.dtype) {
    case DType::f64:
      return static_cast<float>(load<double>(from));
    case DType::f32:
      return load<float>(from);
    case DType::f16:
      return __half2float(load<__half>(from));
    default:
      return __bfloat162float(load<__nv_bfloat16>(from));
  }
}
// To f32, f16 or bf16, nearest even.
__device__ __forceinline__ void store_float(const Matrix& values, std::int64_t row,
                                            std::int64_t col, float value) {
  unsigned char* to = element_to(values, row, col);
  if (values.dtype == DType::f32)
    store(to, value);
  else if (values.dtype == DType::bf16)
    store(to, __float2bfloat16_rn(value));
  else
    store(to, __float2half_rn(value));
}

__device__ inline std::uint32_t draw_of(const EncodePolicy& policy, std::int64_t index) {
  if (policy.rounding != Rounding::stochastic) return 0;
  return stochastic_draw(policy.seed, policy.first_index + static_cast<std::uint64_t>(index),
                         policy.stochastic_bits);
}

}  // namespace octavo::cuda
