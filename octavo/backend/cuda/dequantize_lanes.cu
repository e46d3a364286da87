// Codes with scales to values, eight at a time: where the eight share a scale. Two-level scales are
// multiplied in an order in which only the last product rounds.
#include "octavo/backend/cuda/device/decode_lane.cuh"
#include "octavo/backend/cuda/device/fast_scale.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/lane_plans.h"
#include "octavo/backend/cuda/runtime.h"
#include "octavo/backend/cuda/vector_plan.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

enum class ScaleBits : std::uint8_t { f32, bf16, e8m0, e4m3 };

struct Plan {
  const unsigned char *codes, *scales;
  unsigned char* values;
  std::int64_t rows, vectors;  // vectors: in a row
  std::int64_t code_pitch, value_pitch, scale_pitch, scale_stride;
  std::int64_t tile_rows, tile_vectors;
  const float* tensor_scale;
  int bits;
  ScaleBits scale_bits;
  LaneDecode lane;
};

__device__ __forceinline__ float loaded_scale(const unsigned char* at, ScaleBits bits) {
  switch (bits) {
    case ScaleBits::f32:
      return *reinterpret_cast<const float*>(at);
    case ScaleBits::bf16:
      return __uint_as_float(static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(at))
                             << 16);
    case ScaleBits::e8m0:
      return __uint_as_float(*at == 0xFFu ? kQuietNan
                             : *at == 0u  ? 0x400000u
                                          : static_cast<std::uint32_t>(*at) << 23);
    case ScaleBits::e4m3:
      return decoded_e4m3(*at);
  }
  return 0.0F;
}

template <DType kTarget>
__global__ void __launch_bounds__(kThreads) dequantize_kernel(const __grid_constant__ Plan plan) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= plan.rows * plan.vectors) return;
  // Divisions of 32 bits where they will do: they are a quarter of the price.
  const bool small = plan.rows * plan.vectors < 0x7FFFFFFF;
  const std::int64_t row =
      small ? static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(plan.vectors)
            : at / plan.vectors;
  const std::int64_t vector = at - row * plan.vectors;
  const std::uint32_t tile =
      static_cast<std::uint32_t>(vector) / static_cast<std::uint32_t>(plan.tile_vectors);
  const std::uint32_t tile_row =
      plan.tile_rows == 1
          ? static_cast<std::uint32_t>(row)
          : static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(plan.tile_rows);
  const float scale = loaded_scale(
      plan.scales + tile_row * plan.scale_pitch + tile * plan.scale_stride, plan.scale_bits);
  const float second = plan.tensor_scale != nullptr ? *plan.tensor_scale : 1.0F;
  const bool poisoned = scale != scale || second != second;
  std::uint32_t codes[kVector], values[kVector];
  load_codes(plan.codes + row * plan.code_pitch, vector, plan.bits, codes);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const std::uint32_t decoded = decode_lane(plan.lane, codes[i]);
    float product = __uint_as_float(decoded) * scale;
    if (plan.tensor_scale != nullptr) product *= second;
    // A product forgets the sign of NaN.
    values[i] = poisoned                                ? kQuietNan
                : product == product                    ? __float_as_uint(product)
                : (decoded & 0x7FFFFFFFu) > 0x7F800000u ? decoded
                                                        : kQuietNan;
  }
  store_values<kTarget>(plan.values + row * plan.value_pitch, vector, values);
}

template <DType kTarget>
bool launch(const Exec& exec, const Plan& plan) {
  dequantize_kernel<kTarget>
      <<<blocks_for(plan.rows * plan.vectors, kThreads), kThreads, 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("dequantize_kernel");
  return true;
}

bool scale_kind(const Matrix& scales, ScaleBits* kind) {
  if (scales.dtype == DType::f32)
    *kind = ScaleBits::f32;
  else if (scales.dtype == DType::bf16)
    *kind = ScaleBits::bf16;
  else if (scales.dtype == DType::code && scales.format == e8m0fnu)
    *kind = ScaleBits::e8m0;
  else if (scales.dtype == DType::code && scales.format == e4m3fn)
    *kind = ScaleBits::e4m3;
  else
    return false;
  return true;
}

}  // namespace

bool dequantize_lanes(const Exec& exec, const QuantizedMatrix& from, const Matrix& values) {
  const std::int64_t tile_cols = tile_extent(from.tile.cols, from.codes.cols);
  Plan plan{};
  VectorPlan vectors;
  if (!vector_plan(from.codes, values, &vectors) || !lane_decode(from.codes.format, &plan.lane) ||
      !scale_kind(from.scales, &plan.scale_bits) ||
      (tile_cols % kVector != 0 && tile_cols != from.codes.cols) || values.rows > 0x7FFFFFFF ||
      values.cols / kVector > 0x7FFFFFFF)
    return false;
  // Codes of five significant bits or fewer times e4m3 are exact in f32; others need f64.
  if (from.tensor_scale != nullptr && from.codes.format.mantissa_bits > 8) return false;
  plan.codes = static_cast<const unsigned char*>(from.codes.data);
  plan.scales = static_cast<const unsigned char*>(from.scales.data);
  plan.values = static_cast<unsigned char*>(values.data);
  plan.rows = values.rows;
  plan.vectors = values.cols / kVector;
  plan.code_pitch = from.codes.row_pitch;
  plan.value_pitch = values.row_pitch;
  plan.scale_pitch = from.scales.row_pitch;
  plan.scale_stride = from.scales.col_stride;
  plan.tile_rows = tile_extent(from.tile.rows, from.codes.rows);
  plan.tile_vectors = (tile_cols + kVector - 1) / kVector;
  plan.tensor_scale = from.tensor_scale;
  plan.bits = stored_bits_of(from.codes);
  switch (values.dtype) {
    case DType::f32:
      return launch<DType::f32>(exec, plan);
    case DType::bf16:
      return launch<DType::bf16>(exec, plan);
    case DType::f16:
      return launch<DType::f16>(exec, plan);
    default:
      return false;
  }
}

}  // namespace octavo::cuda
