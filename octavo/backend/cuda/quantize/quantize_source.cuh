// Element access to the source of a quantization, for the general kernels: values or codes with
// scales, optionally transposed and Hadamard-transformed.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/scale/hadamard.h"

namespace octavo::cuda {

// Exact in f64 for every format. NaN keeps the sign of its code, which a product would lose.
__device__ inline double dequantized(const QuantizedMatrix& from, std::int64_t row,
                                     std::int64_t col) {
  const std::int64_t rows = tile_extent(from.tile.rows, from.codes.rows),
                     cols = tile_extent(from.tile.cols, from.codes.cols);
  double scale = load_value(from.scales, row / rows, col / cols);
  if (from.tensor_scale != nullptr) scale *= static_cast<double>(*from.tensor_scale);
  if (scale != scale) return static_cast<double>(f32_nan());
  const double value = decode(from.codes.format, load_code(from.codes, row, col));
  if (value != value) return value;
  const double product = scale * value;  // Inf times zero has a sign that depends on the processor
  return product == product ? product : static_cast<double>(f32_nan());
}

__device__ inline double plain_value(const QuantizeSource& source, bool transposed,
                                     std::int64_t row, std::int64_t col) {
  const std::int64_t r = transposed ? col : row, c = transposed ? row : col;
  if (!source.is_quantized()) return load_value(source.values, r, c);
  const double value = dequantized(source.quantized, r, c);
  return value == value ? static_cast<double>(static_cast<float>(value)) : value;
}

__device__ inline double seen_value(const CopyJob& job, std::int64_t row, std::int64_t col) {
  const std::int64_t first = col / kHadamardSize * kHadamardSize;
  if (!job.hadamard || first + kHadamardSize > job.to.codes.cols)
    return plain_value(job.source, job.transposed, row, col);
  float group[kHadamardSize];
  for (int i = 0; i < kHadamardSize; ++i)
    group[i] = static_cast<float>(plain_value(job.source, job.transposed, row, first + i));
  hadamard16(group, job.signs, job.hadamard_to_bf16);
  return static_cast<double>(group[col - first]);
}

// The magnitude bits that count for an amax; f64 is rounded up to f32, finite values stay finite.
__device__ inline std::uint32_t counted(double value, AmaxOf of) {
  const double magnitude = fabs(value);
  if (magnitude != magnitude) return of == AmaxOf::all ? 0x7FC00000u : 0u;
  if (isinf(magnitude)) return of == AmaxOf::only_finite ? 0u : 0x7F800000u;
  return min(__float_as_uint(__double2float_ru(magnitude)), 0x7F7FFFFFu);
}

// Multiplied or divided, in f32 or f64; what f32 gives is exact in f64.
__device__ inline double scaled_value(const CopyJob& job, double value, const TileScale& scale) {
  if (value != value) return value;  // a product would lose its sign
  if (job.is_f64) {
    const auto factor = static_cast<double>(scale.factor);
    return peer_adjusted(job.peer_adjust, job.division ? value / factor : value * factor);
  }
  const auto x = static_cast<float>(value);
  return static_cast<double>(
      peer_adjusted(job.peer_adjust, job.division ? x / scale.factor : x * scale.factor));
}

__device__ inline Encoded encode_scaled(const CopyJob& job, double value, const TileScale& scale,
                                        std::uint32_t random) {
  if (scale.scale != scale.scale) return {.code = job.poison_code, .nan = true};
  return encode_value(job.to.codes.format, scaled_value(job, value, scale), job.encode, random);
}

__device__ inline TileScale made_scale(const CopyJob& job, float amax) {
  return tile_scale(job.scale, job.to.codes.format, amax,
                    job.to.tensor_scale != nullptr ? *job.to.tensor_scale : 1.0F,
                    job.tensor_amax != nullptr ? *job.tensor_amax : 0.0F);
}

__device__ inline void store_scale(const Matrix& scales, std::int64_t row, std::int64_t col,
                                   std::uint32_t bits) {
  unsigned char* to = element_to(scales, row, col);
  if (scales.dtype == DType::code) return store(to, static_cast<std::uint8_t>(bits));
  if (scales.dtype == DType::f32) return store(to, bits);
  store(to, static_cast<std::uint16_t>(bits));
}

}  // namespace octavo::cuda
