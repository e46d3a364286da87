// Dequantizes eight codes at a time, where the eight share a scale. Two-level scales are multiplied
// in an order in which only the last product rounds.
#include <algorithm>
#include <bit>

#include "octavo/backend/cuda/convert/decode_element.cuh"
#include "octavo/backend/cuda/convert/element_plans.h"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

enum class ScaleBits : std::uint8_t { f32, bf16, e8m0, e4m3 };

struct Plan {
  const unsigned char *codes, *scales;
  unsigned char* values;
  std::int64_t rows, vectors;  // vectors: per row
  std::int64_t code_pitch, value_pitch, scale_pitch, scale_stride;
  std::int64_t tile_rows, tile_vectors;
  int tile_shift;  // log2 of tile_vectors if that is a power of two; else -1
  const float* tensor_scale;
  int bits;
  ScaleBits scale_bits;
  DecodePlan lane;
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

// A block has vectors of one row, or of every gridDim.y-th row.
template <DType kTarget, DecodeKind kKind, int kBits>
__global__ void __launch_bounds__(kThreads) dequantize_kernel(const __grid_constant__ Plan plan) {
  const std::int64_t vector = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (vector >= plan.vectors) return;
  const std::int64_t tile =
      plan.tile_shift >= 0 ? vector >> plan.tile_shift : vector / plan.tile_vectors;
  const float second = plan.tensor_scale != nullptr ? *plan.tensor_scale : 1.0F;
  for (std::int64_t row = blockIdx.y; row < plan.rows; row += gridDim.y) {
    const std::int64_t tile_row = plan.tile_rows == 1 ? row : row / plan.tile_rows;
    const float scale = loaded_scale(
        plan.scales + tile_row * plan.scale_pitch + tile * plan.scale_stride, plan.scale_bits);
    const bool poisoned = scale != scale || second != second;
    std::uint32_t codes[kVector], values[kVector];
    load_codes(plan.codes + row * plan.code_pitch, vector, kBits != 0 ? kBits : plan.bits, codes);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const std::uint32_t decoded = decode_element<kKind>(plan.lane, codes[i]);
      // The first product is exact where there is a second scale; else the second factor is 1.
      const float product = __uint_as_float(decoded) * scale * second;
      // A product loses the sign of NaN.
      const bool was_nan = (decoded & 0x7FFFFFFFu) > 0x7F800000u && !poisoned;
      const std::uint32_t nan = was_nan ? decoded : kQuietNan;
      values[i] = product == product ? __float_as_uint(product) : nan;
    }
    store_values<kTarget>(plan.values + row * plan.value_pitch, vector, values);
  }
}

template <DType kTarget, DecodeKind kKind>
bool launch(const Exec& exec, const Plan& plan) {
  const auto threads =
      static_cast<unsigned>(std::min<std::int64_t>(kThreads, (plan.vectors + 31) / 32 * 32));
  const dim3 grid(blocks_for(plan.vectors, static_cast<int>(threads)),
                  static_cast<unsigned>(std::min<std::int64_t>(plan.rows, 65535)));
  const auto kernel =
      plan.bits == 8 ? dequantize_kernel<kTarget, kKind, 8> : dequantize_kernel<kTarget, kKind, 0>;
  kernel<<<grid, threads, 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("dequantize_kernel");
  return true;
}

template <DType kTarget>
bool launch_kind(const Exec& exec, const Plan& plan) {
  switch (plan.lane.kind) {
    case DecodeKind::plain:
      return launch<kTarget, DecodeKind::plain>(exec, plan);
    case DecodeKind::ieee:
    case DecodeKind::fnuz:
    case DecodeKind::specials:
      return launch<kTarget, DecodeKind::specials>(exec, plan);
    case DecodeKind::integers:
      return launch<kTarget, DecodeKind::integers>(exec, plan);
    case DecodeKind::powers:
      return launch<kTarget, DecodeKind::powers>(exec, plan);
  }
  return false;
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

bool dequantize_vectorized(const Exec& exec, const QuantizedMatrix& from, const Matrix& values) {
  const std::int64_t tile_cols = tile_extent(from.tile.cols, from.codes.cols);
  Plan plan{};
  VectorPlan vectors;
  if (!vector_plan(from.codes, values, &vectors) || !decode_plan(from.codes.format, &plan.lane) ||
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
  const auto across = static_cast<std::uint64_t>(plan.tile_vectors);
  plan.tile_shift = std::has_single_bit(across) ? std::countr_zero(across) : -1;
  plan.tensor_scale = from.tensor_scale;
  plan.bits = stored_bits_of(from.codes);
  switch (values.dtype) {
    case DType::f32:
      return launch_kind<DType::f32>(exec, plan);
    case DType::bf16:
      return launch_kind<DType::bf16>(exec, plan);
    case DType::f16:
      return launch_kind<DType::f16>(exec, plan);
    default:
      return false;
  }
}

}  // namespace octavo::cuda
